// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// simulator is the bus of netdevsim, whose NICs have a driver, virtual functions and a carrier like
// hardware.
const simulator = "/sys/bus/netdevsim"

// ownNamespace is the network namespace of the process, which sysfs shows. The path is the calling
// thread's, as the main thread may be in another namespace.
const ownNamespace = "/proc/thread-self/ns/net"

// card is a simulated NIC.
type card struct {
	name  string
	index int
	// dir is the device's directory in sysfs.
	dir string
}

// writeSimulator writes to one of the simulator's files.
func writeSimulator(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(simulator, file), []byte(text), 0o200))
}

// debianModules has a directory for each kernel of Debian's package user-mode-linux, the only kernel
// without a built-in netdevsim that the tests support.
const debianModules = "/usr/lib/uml/modules"

// needsSimulator skips the test if the running kernel is Debian's, has no netdevsim built in,
// and its package has no such module. On any other kernel a missing driver fails the test.
func needsSimulator(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(simulator); err == nil {
		return
	}
	var name unix.Utsname
	must(t, unix.Uname(&name))
	modules := filepath.Join(debianModules, unix.ByteSliceToString(name.Release[:]))
	err := filepath.WalkDir(modules, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), "netdevsim.ko") {
			return fmt.Errorf("module %s is not loaded", path)
		}
		return err
	})
	if err != nil {
		t.Fatalf("find driver netdevsim, which test/lab/uml/linux.config must have: %v", err)
	}
	t.Skipf("Linux without netdevsim: %s does not exist, and no file in %s is that module", simulator, modules)
}

// newCard creates a NIC in the network namespace of the process.
func newCard(t *testing.T, id int) card {
	t.Helper()
	needsSimulator(t)
	writeSimulator(t, "new_device", fmt.Sprintf("%d 1", id))
	t.Cleanup(func() { writeSimulator(t, "del_device", strconv.Itoa(id)) })
	c := card{dir: fmt.Sprintf("%s/devices/netdevsim%d", simulator, id)}
	entries, err := os.ReadDir(filepath.Join(c.dir, "net"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("netdevsim%d: got NICs %v (error: %v), want one", id, entries, err)
	}
	c.name = entries[0].Name()
	within(t, ownNamespace, func(h *netlink.Handle) { c.index = find(t, h, c.name).Attrs().Index })
	return c
}

// connect connects two NICs with a cable; disconnect unplugs it from the first one.
func connect(t *testing.T, a, b card) (disconnect func()) {
	t.Helper()
	ns, err := os.Open(ownNamespace)
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	writeSimulator(t, "link_device", fmt.Sprintf("%d:%d %d:%d", ns.Fd(), a.index, ns.Fd(), b.index))
	return func() { writeSimulator(t, "unlink_device", fmt.Sprintf("%d:%d", ns.Fd(), a.index)) }
}

// State has a NIC's driver, its number of virtual functions and its carrier.
func TestStateOfVirtualFunctions(t *testing.T) {
	c, other := newCard(t, 71), newCard(t, 72)
	within(t, ownNamespace, func(h *netlink.Handle) {
		must(t, h.LinkSetHardwareAddr(find(t, h, c.name), mac(t, "02:00:00:00:00:71")))
		must(t, h.LinkSetUp(find(t, h, other.name)))
	})
	k := openKernel(t, ownNamespace)
	var disconnect func()
	steps := []struct {
		reason string
		do     func()
		want   netwatcher.NIC
	}{
		{
			reason: "The NIC has a driver.",
			do:     func() {},
			want:   netwatcher.NIC{Driver: "netdevsim"},
		},
		{
			reason: "An administrator created virtual functions.",
			do:     func() { must(t, os.WriteFile(filepath.Join(c.dir, "sriov_numvfs"), []byte("3"), 0o600)) },
			want:   netwatcher.NIC{Driver: "netdevsim", NumVFs: 3},
		},
		{
			reason: "The NIC is up and has a cable.",
			do: func() {
				disconnect = connect(t, c, other)
				within(t, ownNamespace, func(h *netlink.Handle) { must(t, h.LinkSetUp(find(t, h, c.name))) })
			},
			want: netwatcher.NIC{Driver: "netdevsim", NumVFs: 3, Up: true},
		},
		{
			reason: "The cable was unplugged.",
			do:     func() { disconnect() },
			want:   netwatcher.NIC{Driver: "netdevsim", NumVFs: 3, Up: true, NoCarrier: true},
		},
		{
			reason: "The cable was plugged in again.",
			do:     func() { disconnect = connect(t, c, other) },
			want:   netwatcher.NIC{Driver: "netdevsim", NumVFs: 3, Up: true},
		},
	}
	for _, step := range steps {
		step.do()
		step.want.Name, step.want.MAC, step.want.MTU = c.name, "02:00:00:00:00:71", 1500
		awaitNIC(t, k, step.reason, step.want)
	}
}

// awaitNIC waits until State has the NIC; it ignores addresses.
func awaitNIC(t *testing.T, k *Host, reason string, want netwatcher.NIC) {
	t.Helper()
	diff := "no such NIC"
	// The kernel reports a change of carrier a moment later.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		state, err := k.Links().State(t.Context())
		must(t, err)
		for _, n := range state.NICs {
			if n.Name == want.Name {
				n.Addresses = nil
				diff = cmp.Diff(want, n, ips)
			}
		}
		if diff == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s -want +got\n%s", reason, diff)
		}
	}
}
