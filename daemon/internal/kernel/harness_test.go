// SPDX-License-Identifier: Apache-2.0

//go:build kernel || sriov

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

	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// newNamespace creates a network namespace with loopback up, and returns its path.
func newNamespace(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		tb.Fatalf("create a network namespace (the test requires root): %v", err)
	}
	tb.Cleanup(func() { dropNamespace(tb, path) })
	within(tb, path, func(h *netlink.Handle) {
		must(tb, h.LinkSetUp(find(tb, h, "lo")))
	})
	return path
}

func dropNamespace(tb testing.TB, path string) {
	tb.Helper()
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		tb.Errorf("unmount namespace: %v", err)
	}
}

// within runs fn in the namespace, with a netlink handle of it.
func within(tb testing.TB, path string, fn func(h *netlink.Handle)) {
	tb.Helper()
	inside(tb, path, func() {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			tb.Error(err)
			return
		}
		defer h.Close()
		fn(h)
	})
}

// inside runs fn in the namespace; fn may fail the test.
func inside(tb testing.TB, path string, fn func()) {
	tb.Helper()
	ns, err := netns.GetFromPath(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer ns.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := netns.Set(ns); err != nil {
			tb.Errorf("enter %s: %v", path, err)
			return
		}
		fn()
	}()
	<-done
	if tb.Failed() {
		tb.FailNow()
	}
}

// openKernel opens the namespace as a host's.
func openKernel(tb testing.TB, host string) *Host {
	tb.Helper()
	k, err := Open(host)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { must(tb, k.Close()) })
	return k
}

// openFirewall opens the packet filter of a host.
func openFirewall(tb testing.TB, host string) *firewall.Firewall {
	tb.Helper()
	f, err := firewall.Open(host)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { must(tb, f.Close()) })
	return f
}

// newHost creates a host with one NIC, ens4, that is up and has the MTU. The other end of its cable
// is port1 in the namespace wire.
func newHost(tb testing.TB, mtu int) (host, wire string) {
	tb.Helper()
	host, wire = newNamespace(tb), newNamespace(tb)
	cable(tb, host, "ens4", wire, "port1", mtu)
	return host, wire
}

// cable connects two namespaces with a veth.
func cable(tb testing.TB, a, aName, b, bName string, mtu int) {
	tb.Helper()
	far, err := netns.GetFromPath(b)
	if err != nil {
		tb.Fatal(err)
	}
	defer far.Close()
	within(tb, a, func(h *netlink.Handle) {
		must(tb, h.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: aName, MTU: mtu, TxQLen: -1},
			PeerName:  bName, PeerNamespace: netlink.NsFd(far),
		}))
		quiet(tb, aName)
		must(tb, h.LinkSetUp(find(tb, h, aName)))
	})
	within(tb, b, func(h *netlink.Handle) {
		quiet(tb, bName)
		must(tb, h.LinkSetUp(find(tb, h, bName)))
	})
}

// quiet disables IPv6, so that the kernel adds no address.
func quiet(tb testing.TB, name string) {
	tb.Helper()
	must(tb, sysctl{"ipv6/conf/" + name + "/disable_ipv6", "1"}.write())
}

func find(tb testing.TB, h *netlink.Handle, name string) netlink.Link {
	tb.Helper()
	l, err := h.LinkByName(name)
	if err != nil {
		tb.Errorf("find link %s: %v", name, err)
		runtime.Goexit()
	}
	return l
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Error(err)
		runtime.Goexit()
	}
}

// eventually polls until ok or until a minute is over.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	tb.Fatalf("%s: not within a minute", what)
}

// descriptors counts the process's open files.
func descriptors(tb testing.TB) int {
	tb.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	return len(open)
}

// needs skips the test if the kernel has no driver for the kind.
func needs(tb testing.TB, kind string) {
	tb.Helper()
	missing := false
	within(tb, newNamespace(tb), func(h *netlink.Handle) {
		// Loopback cannot have a VLAN.
		must(tb, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "parent", TxQLen: -1}}))
		attrs := netlink.LinkAttrs{Name: "probe", ParentIndex: find(tb, h, "parent").Attrs().Index, TxQLen: -1}
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
		tb.Skipf("the kernel has no driver for %s (make test-kernel runs a kernel with it)", kind)
	}
}

// sameOutcome compares the result of Attach with the link.
func sameOutcome(tb testing.TB, pod, name string, out AttachResult) {
	tb.Helper()
	within(tb, pod, func(h *netlink.Handle) {
		a := find(tb, h, name).Attrs()
		want := AttachResult{Index: a.Index, MAC: a.HardwareAddr.String(), MTU: a.MTU}
		if out != want {
			tb.Errorf("Attach returned %+v, the link has %+v", out, want)
		}
	})
}

// routes returns routes of pairs of destination and gateway.
func routes(pairs ...string) []network.Route {
	var rs []network.Route
	for i := 0; i < len(pairs); i += 2 {
		rs = append(rs, network.Route{Dst: prefix(pairs[i]), Gateway: netip.MustParseAddr(pairs[i+1])})
	}
	return rs
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func mac(tb testing.TB, s string) net.HardwareAddr {
	tb.Helper()
	m, err := net.ParseMAC(s)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
