// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// tree makes a sysfs from lines "path -> target" for links and "path = text" for files. The paths of
// links' targets are as in the kernel's sysfs: only their last part counts.
func tree(tb testing.TB, lines ...string) sysfs.FS {
	tb.Helper()
	root := tb.TempDir()
	for _, line := range lines {
		path, target, link := strings.Cut(line, " -> ")
		path, content, file := strings.Cut(path, " = ")
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, path)
		case file:
			err = os.WriteFile(path, []byte(content+"\n"), 0o600)
		default:
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return sysfs.FS{Root: root}
}

// igb is a physical function with two virtual ones, as Linux 6.12 shows it for an Intel 82576.
func igb(more ...string) []string {
	const devices = "bus/pci/devices/"
	return append([]string{
		devices + "0000:03:00.0/driver -> ../../../bus/pci/drivers/igb",
		devices + "0000:03:00.0/net/ens4",
		devices + "0000:03:00.0/virtfn0 -> ../0000:03:10.0",
		devices + "0000:03:00.0/virtfn1 -> ../0000:03:10.2",
		devices + "0000:03:10.0/physfn -> ../0000:03:00.0",
		devices + "0000:03:10.2/physfn -> ../0000:03:00.0",
		"class/net/ens4/device -> ../../../bus/pci/devices/0000:03:00.0",
	}, more...)
}

func TestFunction(t *testing.T) {
	t.Parallel()
	const (
		second = "bus/pci/devices/0000:03:10.2/"
		parent = "bus/pci/devices/0000:03:00.0/"
	)
	base := sysfs.Function{Address: "0000:03:10.2", ParentAddress: "0000:03:00.0", ParentDriver: "igb", Parent: "ens4", Index: 1}
	cases := map[string]struct {
		reason  string
		files   []string
		want    func(*sysfs.Function)
		user    bool
		address string
		err     error
		message string
	}{
		"Netdev": {
			reason: "The kernel's driver gives the function an interface.",
			files:  igb(second+"driver -> ../igbvf", second+"net/ens4v1"),
			want:   func(f *sysfs.Function) { f.Driver, f.Netdev = "igbvf", "ens4v1" },
		},
		"ElsewhereNetdev": {
			reason: "The interface is in a Pod: sysfs shows the folder without it.",
			files:  igb(second+"driver -> ../igbvf", second+"net"),
			want:   func(f *sysfs.Function) { f.Driver, f.NetdevElsewhere = "igbvf", true },
		},
		"VDPA": {
			reason: "A driver that makes no interface has no folder of them.",
			files:  igb(second + "driver -> ../ifcvf"),
			want:   func(f *sysfs.Function) { f.Driver = "ifcvf" },
		},
		"TwoPorts": {
			reason: "A function of mlx4 has an interface for each port of the card.",
			files:  igb(second+"driver -> ../mlx4_core", second+"net/a", second+"net/b"),
			want: func(f *sysfs.Function) {
				f.Driver, f.Netdev, f.OtherNetdevs = "mlx4_core", "a", []string{"b"}
			},
		},
		"VFIO": {
			reason: "A program in the Pod drives the function.",
			files:  igb(second + "driver -> ../vfio-pci"),
			want:   func(f *sysfs.Function) { f.Driver = "vfio-pci" }, user: true,
		},
		"UIO": {
			reason: "DPDK's own module is a userspace driver, too.",
			files:  igb(second + "driver -> ../igb_uio"),
			want:   func(f *sysfs.Function) { f.Driver = "igb_uio" }, user: true,
		},
		"RDMA": {
			reason: "Functions of mlx5 have an RDMA device besides.",
			files:  igb(second+"driver -> ../mlx5_core", second+"net/ens4v1", second+"infiniband/mlx5_3"),
			want: func(f *sysfs.Function) {
				f.Driver, f.Netdev, f.RDMADevices = "mlx5_core", "ens4v1", []string{"mlx5_3"}
			},
		},
		"SharedRDMA": {
			reason: "Programs reach an RDMA device through a device that is in no namespace.",
			files:  igb(second+"driver -> ../mlx5_core", second+"net/ens4v1", second+"infiniband/mlx5_3", second+"infiniband_verbs/uverbs3"),
			want: func(f *sysfs.Function) {
				f.Driver, f.Netdev, f.RDMADevices = "mlx5_core", "ens4v1", []string{"mlx5_3"}
			},
		},
		"ElsewhereRDMA": {
			reason: "The RDMA device is in a Pod, or in a namespace that a Pod has made.",
			files:  igb(second+"driver -> ../mlx5_core", second+"net/ens4v1", second+"infiniband"),
			want: func(f *sysfs.Function) {
				f.Driver, f.Netdev, f.RDMAElsewhere = "mlx5_core", "ens4v1", true
			},
		},
		"OneRDMADeviceElsewhere": {
			reason: "A function has two RDMA devices, and one of them is in a Pod.",
			files: igb(second+"driver -> ../mlx4_core", second+"net/ens4v1", second+"infiniband/mlx4_3",
				second+"infiniband_verbs/uverbs3", second+"infiniband_verbs/uverbs4"),
			want: func(f *sysfs.Function) {
				f.Driver, f.Netdev, f.RDMADevices, f.RDMAElsewhere = "mlx4_core", "ens4v1", []string{"mlx4_3"}, true
			},
		},
		"Switchdev": {
			reason: "In switchdev mode, representors stand beside the uplink, in any order.",
			files: igb(second+"driver -> ../mlx5_core", second+"net/ens4v1",
				parent+"net/a_rep/phys_port_name = pf0vf1", parent+"net/b_rep/phys_port_name = c1pf0vf0", parent+"net/ens4/phys_port_name = p0"),
			want: func(f *sysfs.Function) { f.Driver, f.Netdev, f.Representor = "mlx5_core", "ens4v1", "a_rep" },
		},
		"Subfunctions": {
			reason: "The representor of a subfunction is no physical function.",
			files: igb(second+"driver -> ../mlx5_core", parent+"net/a_sub/phys_port_name = pf0sf1",
				parent+"net/b_rep/phys_port_name = pf0vf1"),
			want: func(f *sysfs.Function) { f.Driver, f.Representor = "mlx5_core", "b_rep" },
		},
		"NoDriver": {
			reason: "An administrator unbound the driver.",
			files:  igb(), want: func(*sysfs.Function) {},
		},
		"PhysicalFunction": {
			reason: "A device plugin that gives a whole NIC away is not for this backend.",
			files:  igb(), address: "0000:03:00.0", err: sysfs.ErrNoFunction, message: "0000:03:00.0",
		},
		"Gone": {
			reason: "The number of functions was changed after kubelet allocated one.",
			files:  igb(), address: "0000:03:10.4", err: sysfs.ErrNoFunction, message: "0000:03:10.4",
		},
		"NoAddress": {
			reason: "Other device plugins have other IDs.",
			files:  igb(), address: "../../etc", err: sysfs.ErrNoFunction, message: "must be a PCI address",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := tc.address
			if address == "" {
				address = base.Address
			}
			got, err := tree(t, tc.files...).Function(address)
			if !errors.Is(err, tc.err) || err != nil && !strings.Contains(err.Error(), tc.message) {
				t.Fatalf("%s got error %v, want %v with %q", tc.reason, err, tc.err, tc.message)
			}
			if err != nil {
				return
			}
			want := base
			tc.want(&want)
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
			if got.Userspace() != tc.user {
				t.Errorf("%s got Userspace %t", tc.reason, got.Userspace())
			}
		})
	}
}

// A function without a physical function that the node drives cannot be set.
func TestParentWithoutNetdev(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, driver string
		want           error
		message        string
	}{
		"VFIO": {
			"An administrator runs a program on the whole card.", "vfio-pci",
			sysfs.ErrUserspaceParent, "0000:03:00.0 is bound to vfio-pci: bind it to the driver of its kind",
		},
		"UIO": {
			"DPDK's own module takes physical functions, too.", "igb_uio",
			sysfs.ErrUserspaceParent, "0000:03:00.0 is bound to igb_uio",
		},
		"Unbound": {"An administrator unbound the driver.", "", sysfs.ErrNoParent, "0000:03:00.0 is bound to no driver"},
		"Restarts": {
			"The driver has no interface while it restarts.", "igb", sysfs.ErrNoParent, "0000:03:00.0 (driver igb) has none on the node",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := []string{
				"bus/pci/devices/0000:03:00.0/virtfn0 -> ../0000:03:10.0",
				"bus/pci/devices/0000:03:10.0/physfn -> ../0000:03:00.0",
			}
			if tc.driver != "" {
				files = append(files, "bus/pci/devices/0000:03:00.0/driver -> ../../../bus/pci/drivers/"+tc.driver)
			}
			_, err := tree(t, files...).Function("0000:03:10.0")
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.message) || !strings.Contains(err.Error(), "0000:03:10.0") {
				t.Errorf("%s got %v, want %q", tc.reason, err, tc.message)
			}
		})
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	s := tree(t, igb(
		"bus/pci/devices/0000:03:10.0/driver -> ../vfio-pci",
		"bus/pci/devices/0000:03:10.2/driver -> ../igbvf",
		"bus/pci/devices/0000:03:00.0/virtfn10 -> ../0000:03:11.4", // after virtfn2, not virtfn1
		"bus/pci/devices/0000:03:11.4/physfn -> ../0000:03:00.0",
		"bus/pci/devices/0000:03:00.0/virtfn2 -> ../0000:03:10.4",
		"bus/pci/devices/0000:03:10.4/physfn -> ../0000:03:00.0",
	)...)
	found, err := s.Functions("ens4")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.Address+" "+f.Driver)
	}
	if diff := cmp.Diff([]string{"0000:03:10.0 vfio-pci", "0000:03:10.2 igbvf", "0000:03:10.4 ", "0000:03:11.4 "}, got); diff != "" {
		t.Errorf("functions of ens4: -want +got\n%s", diff)
	}
	one, err := s.Function("0000:03:10.2")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, found[1]); diff != "" {
		t.Errorf("a function and the same function in the list: -want +got\n%s", diff)
	}
	if none, err := s.Functions("ens5"); err != nil || len(none) > 0 {
		t.Errorf("a NIC without functions: got %v, %v", none, err)
	}
}

func TestIsRepresentor(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, port string
		want         bool
	}{
		"VF":         {"The first card of the node has no controller number.", "pf0vf12", true},
		"Controller": {"A card with its own processor shows functions of other hosts.", "c1pf0vf0", true},
		"Subfunction": {
			"Subfunctions are ports of the switch, too.", "pf0sf88", true,
		},
		"Uplink": {"The physical function is the port of the cable.", "p0", false},
		"None":   {"Most drivers have no port name.", "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tree(t, "class/net/a/phys_port_name = "+tc.port)
			if got := s.IsRepresentor("a"); got != tc.want {
				t.Errorf("%s got %t for %q", tc.reason, got, tc.port)
			}
		})
	}
}

// A node with two cards of 128 functions reads all of them whenever its links change.
func BenchmarkFunctions(b *testing.B) {
	for name, representors := range map[string]bool{"Legacy": false, "Switchdev": true} {
		b.Run(name, func(b *testing.B) {
			s := tree(b, card(128, representors)...)
			for b.Loop() {
				if found, err := s.Functions("ens4"); err != nil || len(found) != 128 {
					b.Fatalf("got %d functions: %v", len(found), err)
				}
			}
		})
	}
}

// card is a physical function with many virtual ones.
func card(functions int, representors bool) []string {
	const parent = "bus/pci/devices/0000:03:00.0/"
	lines := []string{"class/net/ens4/device -> ../../../bus/pci/devices/0000:03:00.0", parent + "net/ens4", parent + "driver -> ../mlx5_core"}
	for i := range functions {
		address := fmt.Sprintf("0000:%02x:%02x.%d", 4+i/256, i/8%32, i%8)
		lines = append(lines,
			fmt.Sprintf("%svirtfn%d -> ../%s", parent, i, address),
			"bus/pci/devices/"+address+"/physfn -> ../0000:03:00.0",
			"bus/pci/devices/"+address+"/driver -> ../mlx5_core",
			fmt.Sprintf("bus/pci/devices/%s/net/ens4v%d", address, i))
		if representors {
			lines = append(lines, fmt.Sprintf("%snet/ens4r%d/phys_port_name = pf0vf%d", parent, i, i))
		}
	}
	return lines
}
