// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/acd"
)

// newMachine creates a host with a cable to a machine outside of the cluster, which has the addresses
// on its NIC, or on a VLAN of it.
func newMachine(tb testing.TB, vlan int, addresses ...string) (host, machine string) {
	tb.Helper()
	host, machine = newHost(tb, 1500)
	within(tb, machine, func(h *netlink.Handle) {
		name := "port1"
		// Otherwise Linux answers on each link for the addresses of all.
		must(tb, sysctl{"ipv4/conf/all/arp_ignore", "1"}.write())
		if vlan != 0 {
			name = addVLAN(tb, h, name, vlan)
		}
		for _, a := range addresses {
			if netip.MustParsePrefix(a).Addr().Is6() {
				must(tb, sysctl{"ipv6/conf/" + name + "/disable_ipv6", "0"}.write())
			}
			addr, err := netlink.ParseAddr(a)
			must(tb, err)
			addr.Flags = unix.IFA_F_NODAD
			must(tb, h.AddrAdd(find(tb, h, name), addr))
		}
	})
	return host, machine
}

// addVLAN adds a VLAN link that is up.
func addVLAN(tb testing.TB, h *netlink.Handle, parent string, id int) string {
	tb.Helper()
	const name = "net.vlan"
	must(tb, h.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: find(tb, h, parent).Attrs().Index, TxQLen: -1}, VlanId: id}))
	must(tb, sysctl{"ipv6/conf/" + name + "/disable_ipv6", "1"}.write())
	must(tb, h.LinkSetUp(find(tb, h, name)))
	return name
}

// Probe finds another machine's addresses over each kind of host link and beside slaves of each kind.
// Addresses of this node's Pods are no conflict.
func TestProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// vlan is the machine's VLAN, link the VLAN of the host's link for the probe.
		vlan, link int
		// kind and own are the slave kind and the address of a Pod of this node on the same link.
		kind string
		own  string
		asks []string
		want []string
		down bool
	}{
		"Free":     {reason: "No machine has the addresses.", asks: []string{"10.0.0.9", "fd00::9"}},
		"IPv4":     {reason: "A machine has the address.", asks: []string{"10.0.0.5"}, want: []string{"10.0.0.5"}},
		"IPv6":     {reason: "A machine has the address.", asks: []string{"fd00::5"}, want: []string{"fd00::5"}},
		"Both":     {reason: "Both families are probed at once.", asks: []string{"10.0.0.5", "fd00::5"}, want: []string{"10.0.0.5", "fd00::5"}},
		"One":      {reason: "A machine has one of two addresses.", asks: []string{"10.0.0.5", "fd00::9"}, want: []string{"10.0.0.5"}},
		"MACVLAN":  {reason: "A MACVLAN slave is on the link.", kind: MACVLAN, own: "10.0.0.7/24", asks: []string{"10.0.0.5", "fd00::5"}, want: []string{"10.0.0.5", "fd00::5"}},
		"IPVLAN":   {reason: "A slave with the link's MAC is on the link.", kind: IPVLAN, own: "10.0.0.7/24", asks: []string{"10.0.0.5", "fd00::5"}, want: []string{"10.0.0.5", "fd00::5"}},
		"OwnMAC":   {reason: "A Pod of this node is no conflict.", kind: MACVLAN, own: "10.0.0.7/24", asks: []string{"10.0.0.7"}},
		"OwnIP":    {reason: "A Pod with the link's MAC is no conflict.", kind: IPVLAN, own: "10.0.0.7/24", asks: []string{"10.0.0.7"}},
		"VLAN":     {reason: "The machine is on the network's VLAN.", vlan: 5, link: 5, asks: []string{"10.0.0.5", "fd00::5"}, want: []string{"10.0.0.5", "fd00::5"}},
		"BareNIC":  {reason: "A machine on a VLAN is on another network.", vlan: 5, asks: []string{"10.0.0.5", "fd00::5"}},
		"LinkDown": {reason: "Nothing answers on a link that is down.", down: true, asks: []string{"10.0.0.5", "fd00::5"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{tc.kind, map[bool]string{true: "vlan"}[tc.vlan+tc.link > 0]} {
				if kind != "" {
					needs(t, kind)
				}
			}
			host, machine := newMachine(t, tc.vlan, "10.0.0.5/24", "fd00::5/64")
			parent := "ens4"
			within(t, host, func(h *netlink.Handle) {
				if tc.link != 0 {
					parent = addVLAN(t, h, "ens4", tc.link)
				}
				if tc.down {
					must(t, h.LinkSetDown(find(t, h, "ens4")))
				}
			})
			k := openKernel(t, host)
			if tc.kind != "" {
				s := withDefaults(Slave{PodInterface: PodInterface{V4: prefix(tc.own)}, Kind: tc.kind}, newNamespace(t))
				if _, err := k.Slaves().Attach(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			var asks []netip.Addr
			for _, a := range tc.asks {
				asks = append(asks, netip.MustParseAddr(a))
			}
			files, before := descriptors(t), neighbours(t, machine)
			found, err := k.Prober().Probe(t.Context(), parent, asks)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for a, mac := range found {
				got = append(got, a.String())
				within(t, machine, func(h *netlink.Handle) {
					if want := find(t, h, "port1").Attrs().HardwareAddr; want.String() != mac.String() {
						t.Errorf("%v has MAC %v, want %v", a, mac, want)
					}
				})
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, neighbours(t, machine)); diff != "" {
				t.Errorf("the probe changed the machine's neighbour table: -before +after:\n%s", diff)
			}
			if after := descriptors(t); after > files { // the garbage collector may close files of an earlier test
				t.Errorf("%d files were open before, %d are after", files, after)
			}
		})
	}
}

// neighbours returns a machine's neighbour table.
func neighbours(tb testing.TB, path string) (table []string) {
	tb.Helper()
	within(tb, path, func(h *netlink.Handle) {
		list, err := h.NeighList(0, 0)
		must(tb, err)
		for _, n := range list {
			if !n.IP.IsMulticast() {
				table = append(table, n.String())
			}
		}
	})
	return table
}

func TestProbeErrors(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	if _, err := k.Prober().Probe(t.Context(), "ens9", []netip.Addr{netip.MustParseAddr("10.0.0.5")}); !errors.Is(err, ErrParentMissing) {
		t.Errorf("missing link: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Prober().Probe(ctx, "ens4", []netip.Addr{netip.MustParseAddr("10.0.0.5")}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

// Probe ignores frames of the NIC's VLANs, which belong to other networks, and a flood of frames does
// not delay it.
func TestProbeHearsItsOwnNetwork(t *testing.T) {
	host, machine := newHost(t, 1500)
	k := openKernel(t, host)
	reply := acd.ProbeFrame(net.HardwareAddr{2, 0, 0, 0, 0, 9}, netip.MustParseAddr("10.0.0.1"))
	copy(reply[28:], []byte{10, 0, 0, 5}) // a request in which the sender has 10.0.0.5
	for name, tc := range map[string]struct {
		tag  []byte
		want int
	}{
		"Untagged": {nil, 1},
		"Tagged":   {[]byte{0x81, 0, 0, 5}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			stop := flood(t, machine, "port1", slices.Concat(reply[:12], tc.tag, reply[12:]))
			defer stop()
			begin := time.Now()
			found, err := k.Prober().Probe(t.Context(), "ens4", []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")})
			if err != nil || len(found) != tc.want {
				t.Errorf("got %v, %v; want %d", found, err, tc.want)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// flood sends a frame continuously until stop is called.
func flood(tb testing.TB, path, name string, frame []byte) (stop func()) {
	tb.Helper()
	fd := -1
	inside(tb, path, func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		must(tb, err)
		ifc, err := net.InterfaceByName(name)
		must(tb, err)
		must(tb, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifc.Index}))
	})
	ctx, cancel := context.WithCancel(context.Background())
	sent, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = unix.Write(fd, frame)
			if n == 0 {
				close(sent)
			}
		}
	}()
	<-sent
	return func() {
		cancel()
		<-done
		_ = unix.Close(fd)
	}
}

// BenchmarkProbe measures a probe that nothing answers, and one with an answer for each address.
func BenchmarkProbe(b *testing.B) {
	host, _ := newMachine(b, 0, "10.0.0.5/24", "fd00::5/64")
	k := openKernel(b, host)
	for name, asks := range map[string][]netip.Addr{
		"Free":  {netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")},
		"Taken": {netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")},
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				if _, err := k.Prober().Probe(b.Context(), "ens4", asks); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
		})
	}
}
