// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// newNamespace makes a network namespace with a path and loopback up.
func newNamespace(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread dies with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace (the test needs root): %v", err)
	}
	t.Cleanup(func() { dropNamespace(t, path) })
	within(t, path, func(h *netlink.Handle) {
		must(t, h.LinkSetUp(find(t, h, "lo")))
	})
	return path
}

func dropNamespace(t testing.TB, path string) {
	t.Helper()
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		t.Errorf("unmount namespace: %v", err)
	}
}

// within hands over a netlink handle of the namespace, and enters it too.
func within(t testing.TB, path string, fn func(h *netlink.Handle)) {
	t.Helper()
	inside(t, path, func() {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			t.Error(err)
			return
		}
		defer h.Close()
		fn(h)
	})
}

// inside runs fn in the namespace; fn may fail the test.
func inside(t testing.TB, path string, fn func()) {
	t.Helper()
	ns, err := netns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread dies with the goroutine
		if err := netns.Set(ns); err != nil {
			t.Errorf("enter %s: %v", path, err)
			return
		}
		fn()
	}()
	<-done
	if t.Failed() {
		t.FailNow()
	}
}

// openKernel takes the namespace for a host's.
func openKernel(t testing.TB, host string) *Kernel {
	t.Helper()
	k, err := Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, k.Close()) })
	return k
}

// newHost is a host with one NIC, ens4 of the given MTU, that is up; the other
// end of the cable is in the namespace at the second path.
func newHost(t testing.TB, mtu int) (host, wire string) {
	t.Helper()
	host, wire = newNamespace(t), newNamespace(t)
	cable(t, host, "ens4", wire, "port1", mtu)
	return host, wire
}

// cable joins two namespaces.
func cable(t testing.TB, a, aName, b, bName string, mtu int) {
	t.Helper()
	far, err := netns.GetFromPath(b)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	within(t, a, func(h *netlink.Handle) {
		must(t, h.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: aName, MTU: mtu, TxQLen: -1},
			PeerName:  bName, PeerNamespace: netlink.NsFd(far),
		}))
		quiet(t, aName)
		must(t, h.LinkSetUp(find(t, h, aName)))
	})
	within(t, b, func(h *netlink.Handle) {
		quiet(t, bName)
		must(t, h.LinkSetUp(find(t, h, bName)))
	})
}

// quiet keeps the kernel from adding addresses of its own.
func quiet(t testing.TB, name string) {
	t.Helper()
	must(t, sysctl{"ipv6/conf/" + name + "/disable_ipv6", "1"}.write())
}

func find(t testing.TB, h *netlink.Handle, name string) netlink.Link {
	t.Helper()
	l, err := h.LinkByName(name)
	if err != nil {
		t.Errorf("find link %s: %v", name, err)
		runtime.Goexit()
	}
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
}

// eventually polls until ok or until 5 s are over.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within 5 s", what)
}

// descriptors counts the process's open files.
func descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// needs skips on a kernel that proves that it has no driver for the kind.
func needs(t testing.TB, kind string) {
	t.Helper()
	missing := false
	within(t, newNamespace(t), func(h *netlink.Handle) {
		lo := find(t, h, "lo").Attrs().Index
		attrs := netlink.LinkAttrs{Name: "probe", ParentIndex: lo, TxQLen: -1}
		var l netlink.Link
		switch kind {
		case IPVLAN:
			l = &netlink.IPVlan{LinkAttrs: attrs}
		case "vlan":
			l = &netlink.Vlan{LinkAttrs: attrs, VlanId: 5}
		default:
			return
		}
		missing = errors.Is(h.LinkAdd(l), unix.EOPNOTSUPP)
	})
	if missing {
		t.Skipf("the kernel has no driver for %s (make test-kernel brings one that has)", kind)
	}
}

// sameOutcome compares what Attach says with what the kernel says.
func sameOutcome(t testing.TB, pod, name string, out Outcome) {
	t.Helper()
	within(t, pod, func(h *netlink.Handle) {
		a := find(t, h, name).Attrs()
		want := Outcome{Index: a.Index, MAC: a.HardwareAddr.String(), MTU: a.MTU}
		if out != want {
			t.Errorf("Attach said %+v, the kernel says %+v", out, want)
		}
	})
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func mac(t testing.TB, s string) net.HardwareAddr {
	t.Helper()
	m, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
