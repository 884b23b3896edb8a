// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// A NIC with the link physfn is a virtual function, also if the link's target is not visible.
func TestVirtualFunction(t *testing.T) {
	t.Parallel()
	card, function := t.TempDir(), t.TempDir()
	for _, dir := range []string{card, function} {
		if err := os.Mkdir(filepath.Join(dir, "device"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../0000:03:00.0", filepath.Join(function, "device/physfn")); err != nil {
		t.Fatal(err)
	}
	if isVirtualFunction(card) || !isVirtualFunction(function) {
		t.Errorf("card %v, function %v; want only the latter to be one", isVirtualFunction(card), isVirtualFunction(function))
	}
}

// newSysfs makes a sysfs from lines "path -> target" for links and "path = text" for files.
func newSysfs(t *testing.T, lines ...string) sysfs.FS {
	t.Helper()
	root := t.TempDir()
	for _, line := range lines {
		path, target, link := strings.Cut(line, " -> ")
		path, content, _ := strings.Cut(path, " = ")
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil && link {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(content+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sysfs.FS{Root: root}
}

// A card in switchdev mode has two functions. The device of their representors is that of the card.
func TestDescribeCard(t *testing.T) {
	t.Parallel()
	const card, device = "bus/pci/devices/0000:03:00.0/", "device -> ../../../bus/pci/devices/0000:03:00.0"
	s := newSysfs(t, "class/net/ens4/"+device, "class/net/ens4/speed = 25000", "class/net/ens4/phys_port_name = p0",
		"class/net/ens4r0/"+device, "class/net/ens4r0/phys_port_name = pf0vf0",
		"class/net/ens4v1/device -> ../../../bus/pci/devices/0000:03:00.3", "class/net/ens4v1/speed = -1",
		"class/net/bond0/speed = 50000",
		card+"driver -> ../mlx5_core", card+"sriov_totalvfs = 8", card+"sriov_numvfs = 2",
		card+"virtfn0 -> ../0000:03:00.2", card+"virtfn1 -> ../0000:03:00.3",
		card+"net/ens4/phys_port_name = p0", card+"net/ens4r0/phys_port_name = pf0vf0",
		"bus/pci/devices/0000:03:00.2/driver -> ../vfio-pci",
		"bus/pci/devices/0000:03:00.3/driver -> ../mlx5_core", "bus/pci/devices/0000:03:00.3/physfn -> ../0000:03:00.0",
	)
	cases := map[string]struct {
		reason string
		want   netwatcher.NIC
	}{
		"ens4": {reason: "A physical function has its functions.", want: netwatcher.NIC{
			Driver: "mlx5_core", Speed: 25000, TotalVFs: 8, NumVFs: 2, PCIAddress: "0000:03:00.0",
			Functions: []netwatcher.VirtualFunction{
				{Index: 0, Address: "0000:03:00.2", Driver: "vfio-pci", Userspace: true, Representor: "ens4r0"},
				{Index: 1, Address: "0000:03:00.3", Driver: "mlx5_core"},
			},
		}},
		"ens4r0": {reason: "A representor does not have the functions once more.", want: netwatcher.NIC{Driver: "mlx5_core", Representor: true}},
		"ens4v1": {reason: "A function has no functions, and an unknown speed is 0.", want: netwatcher.NIC{Driver: "mlx5_core", VF: true}},
		"bond0":  {reason: "A bond has no device.", want: netwatcher.NIC{Speed: 50000}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := netwatcher.NIC{Name: name}
			describeCard(s, &got)
			tc.want.Name = name
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
