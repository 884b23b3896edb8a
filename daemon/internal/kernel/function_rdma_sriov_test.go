// SPDX-License-Identifier: Apache-2.0

//go:build sriov

package kernel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// The RDMA device of a function moves with it. QEMU's card has none: a software device stands for it, in a simulated
// sysfs. The kernel refuses to move that one, so what is tested is that it was asked, and that
// the function is then as before, with the device's name. No device that can be moved is known that needs no card.
func TestRDMADeviceMoves(t *testing.T) {
	command(t, "modprobe", "rdma_rxe")
	mode, err := netlink.RdmaSystemGetNetnsMode()
	if err != nil || mode != rdmaExclusive {
		t.Fatalf("the guest's RDMA mode is %q, %v", mode, err)
	}
	command(t, "ip", "link", "add", "roce", "type", "dummy")
	t.Cleanup(func() { command(t, "ip", "link", "del", "roce") })
	command(t, "ip", "link", "set", "dev", "roce", "up")
	command(t, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "roce")

	k := openKernel(t, hostNamespace).Functions(sysfsWithRDMA(t, "rxe0"))
	f := exampleFunction(t, k)
	f.Netns = newNamespace(t)
	_, err = k.Attach(t.Context(), f)
	if !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "move RDMA device rxe0") {
		t.Errorf("got %v, want the kernel's refusal to move rxe0", err)
	}
	_, after, err := k.Read(t.Context(), f.Address)
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffStates(f.Saved, after); diff != "" {
		t.Errorf("after the failed ADD the function differs: -before +after\n%s", diff)
	}
	command(t, "rdma", "dev", "set", "rxe0", "name", "mine")
	f.Netns = "" // the namespace is gone, with which the kernel returns a device under its present name
	if _, err := k.Detach(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	command(t, "rdma", "link", "show", "rxe0/1")
}

// sysfsWithRDMA returns a sysfs that is the machine's, but for an RDMA device of the first function of pf0.
func sysfsWithRDMA(t *testing.T, name string) sysfs.FS {
	t.Helper()
	all, err := sysfs.FS{Root: sysfs.DefaultRoot}.Functions("pf0")
	if err != nil || len(all) == 0 {
		t.Fatalf("functions of pf0: %v, %v", all, err)
	}
	root := t.TempDir()
	devices := filepath.Join(root, "bus/pci/devices")
	dir := filepath.Join(devices, all[0].Address)
	must(t, os.MkdirAll(filepath.Join(dir, "infiniband", name), 0o755))
	must(t, os.Symlink(filepath.Join(sysfs.DefaultRoot, "bus/pci/devices", all[0].ParentAddress), filepath.Join(devices, all[0].ParentAddress)))
	for _, entry := range []string{"physfn", "driver"} {
		target, err := os.Readlink(filepath.Join(sysfs.DefaultRoot, "bus/pci/devices", all[0].Address, entry))
		must(t, err)
		must(t, os.Symlink(target, filepath.Join(dir, entry)))
	}
	must(t, os.Symlink(filepath.Join(sysfs.DefaultRoot, "bus/pci/devices", all[0].Address, "net"), filepath.Join(dir, "net")))
	return sysfs.FS{Root: root}
}

func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}
