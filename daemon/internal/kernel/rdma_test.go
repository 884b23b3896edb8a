// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// fakeRDMA is an RDMA subsystem in which the calling thread's namespace has the devices in names, by index.
type fakeRDMA struct {
	shared bool
	names  map[uint32]string
	// moved are the devices that are in the other namespace; elsewhere are names of devices of further ones.
	moved     map[uint32]string
	elsewhere []string
	err       error
}

func (f *fakeRDMA) mode() (string, error) {
	if f.shared {
		return "shared", nil
	}
	return rdmaExclusive, nil
}

func (f *fakeRDMA) devices() ([]*netlink.RdmaLink, error) {
	var all []*netlink.RdmaLink
	for index, name := range f.names {
		all = append(all, &netlink.RdmaLink{Attrs: netlink.RdmaLinkAttrs{Index: index, Name: name}})
	}
	return all, nil
}

func (f *fakeRDMA) move(d *netlink.RdmaLink, _ *netNamespace) error {
	if f.err != nil {
		return f.err
	}
	f.moved = map[uint32]string{d.Attrs.Index: f.names[d.Attrs.Index]}
	delete(f.names, d.Attrs.Index)
	return nil
}

func (f *fakeRDMA) rename(d *netlink.RdmaLink, name string) error {
	if slices.Contains(f.elsewhere, name) {
		return unix.EEXIST
	}
	if f.err != nil {
		return f.err
	}
	f.names[d.Attrs.Index] = name
	return nil
}

// A Pod cannot hide its RDMA device by another name: the kernel's index stays.
func TestMoveRDMADevices(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		system  fakeRDMA
		indexes map[string]uint32
		want    map[uint32]string
		err     error
	}{
		"Same":    {"The Pod has changed nothing.", fakeRDMA{names: map[uint32]string{7: "mlx5_2"}}, map[string]uint32{"mlx5_2": 7}, map[uint32]string{7: "mlx5_2"}, nil},
		"Renamed": {"The Pod has renamed its device.", fakeRDMA{names: map[uint32]string{7: "mine"}}, map[string]uint32{"mlx5_2": 7}, map[uint32]string{7: "mine"}, nil},
		"Swapped": {
			"A device of another function has the name.", fakeRDMA{names: map[uint32]string{7: "mine", 8: "mlx5_2"}},
			map[string]uint32{"mlx5_2": 7}, map[uint32]string{7: "mine"}, nil,
		},
		"Other":   {"The device is in another namespace.", fakeRDMA{names: map[uint32]string{8: "mlx5_3"}}, map[string]uint32{"mlx5_2": 7}, nil, nil},
		"Shared":  {"All namespaces have all devices.", fakeRDMA{shared: true, names: map[uint32]string{7: "mlx5_2"}}, map[string]uint32{"mlx5_2": 7}, nil, nil},
		"None":    {"The function has no RDMA device.", fakeRDMA{names: map[uint32]string{7: "mlx5_2"}}, nil, nil, nil},
		"Refused": {"Software devices cannot be moved.", fakeRDMA{names: map[uint32]string{7: "rxe0"}, err: unix.EOPNOTSUPP}, map[string]uint32{"rxe0": 7}, nil, unix.EOPNOTSUPP},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			moved, err := moveRDMADevices(&tc.system, tc.indexes, nil)
			if !errors.Is(err, tc.err) || moved != len(tc.want) {
				t.Errorf("%s got %d moved, %v, want %v", tc.reason, moved, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, tc.system.moved); diff != "" {
				t.Errorf("%s moved devices: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRenameRDMADevices(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		system fakeRDMA
		want   string
		err    error
	}{
		"Same":     {"The Pod has changed nothing.", fakeRDMA{names: map[uint32]string{7: "mlx5_2"}, err: unix.EINVAL}, "mlx5_2", nil},
		"Renamed":  {"The name returns.", fakeRDMA{names: map[uint32]string{7: "mine"}}, "mlx5_2", nil},
		"Taken":    {"Another Pod has given its device the name: DEL ends all the same.", fakeRDMA{names: map[uint32]string{7: "mine"}, elsewhere: []string{"mlx5_2"}}, "mine", nil},
		"Rejected": {"Another answer is an error.", fakeRDMA{names: map[uint32]string{7: "mine"}, err: unix.EINVAL}, "mine", unix.EINVAL},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := renameRDMADevices(&tc.system, map[string]uint32{"mlx5_2": 7}); !errors.Is(err, tc.err) {
				t.Errorf("%s got %v, want %v", tc.reason, err, tc.err)
			}
			if got := tc.system.names[7]; got != tc.want {
				t.Errorf("%s the device is %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestRDMAIndexes(t *testing.T) {
	t.Parallel()
	names := map[uint32]string{7: "mlx5_2", 8: "mlx5_3"}
	cases := map[string]struct {
		reason string
		system fakeRDMA
		want   map[string]uint32
	}{
		"Exclusive": {"A device is one Pod's.", fakeRDMA{names: names}, map[string]uint32{"mlx5_2": 7}},
		"Shared":    {"No device moves.", fakeRDMA{names: names, shared: true}, nil},
		"Gone":      {"The driver was unbound meanwhile.", fakeRDMA{}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := rdmaIndexes(&tc.system, []string{"mlx5_2"})
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%s got %v: -want +got\n%s", tc.reason, err, diff)
			}
		})
	}
}

// A Pod does not get a function whose RDMA device another namespace has.
func TestReadWithoutRDMADevice(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const address = "0000:03:10.0"
	function := filepath.Join(root, "bus/pci/devices", address)
	parent := filepath.Join(root, "bus/pci/devices/0000:03:00.0")
	for _, dir := range []string{filepath.Join(function, "infiniband"), filepath.Join(function, "net/a"), filepath.Join(parent, "net/ens4")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		filepath.Join(function, "physfn"): "../0000:03:00.0", filepath.Join(function, "driver"): "../mlx5_core", filepath.Join(parent, "virtfn0"): "../" + address,
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	k := &Functions{sysfs: sysfs.FS{Root: root}}
	if _, _, err := k.Read(t.Context(), address); !errors.Is(err, ErrFunctionBusy) {
		t.Errorf("got %v, want ErrFunctionBusy", err)
	}
}
