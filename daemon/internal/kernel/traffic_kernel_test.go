// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// newTrunk creates hosts whose NICs ens4 are on one switch; if addressed, with the addresses
// 192.0.2.1/24 and up.
func newTrunk(t *testing.T, hosts int, addressed bool) []string {
	t.Helper()
	paths, _ := newSwitch(t, hosts, addressed)
	return paths
}

// newSwitch is newTrunk, and also returns the switch, which has the ports port1 and up.
func newSwitch(t *testing.T, hosts int, addressed bool) (paths []string, sw string) {
	t.Helper()
	sw = newNamespace(t)
	within(t, sw, func(h *netlink.Handle) {
		must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1}}))
		quiet(t, "br0")
		must(t, h.LinkSetUp(find(t, h, "br0")))
	})
	for i := range hosts {
		host := newNamespace(t)
		port := "port" + string(rune('1'+i))
		cable(t, host, "ens4", sw, port, 1500)
		within(t, sw, func(h *netlink.Handle) { must(t, h.LinkSetMaster(find(t, h, port), find(t, h, "br0"))) })
		if addressed {
			addAddress(t, host, "ens4", netip.PrefixFrom(vtep(i), 24))
		}
		paths = append(paths, host)
	}
	return paths, sw
}

func vtep(host int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(host + 1)}) }

func addAddress(t *testing.T, path, name string, a netip.Prefix) {
	t.Helper()
	within(t, path, func(h *netlink.Handle) {
		addr, err := netlink.ParseAddr(a.String())
		must(t, err)
		must(t, h.AddrAdd(find(t, h, name), addr))
	})
}

// attachOn creates the host link and a Pod on it, and returns the Pod.
func attachOn(t *testing.T, host string, link netwatcher.Spec, s Slave) string {
	t.Helper()
	k := openKernel(t, host)
	if err := k.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: link}); err != nil {
		t.Fatal(err)
	}
	pod := newNamespace(t)
	s.Parent = link.Name
	if _, err := k.Slaves().Attach(context.Background(), withDefaults(s, pod)); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestPodsOnVLAN(t *testing.T) {
	needs(t, IPVLAN)
	hosts := newTrunk(t, 2, false)
	link := vlanSpec("storage.500", 500)
	one := attachOn(t, hosts[0], link, Slave{PodInterface: PodInterface{V4: prefix("10.50.0.10/24"), V6: prefix("fd00:50::10/64")}, Kind: IPVLAN})
	two := attachOn(t, hosts[1], link, Slave{PodInterface: PodInterface{V4: prefix("10.50.0.11/24"), V6: prefix("fd00:50::11/64")}, Kind: IPVLAN})
	other := attachOn(t, hosts[1], vlanSpec("other.501", 501), Slave{PodInterface: PodInterface{V4: prefix("10.50.0.12/24")}, Kind: IPVLAN})
	reaches(t, one, two, "10.50.0.11")
	reaches(t, one, two, "fd00:50::11")
	reaches(t, two, one, "10.50.0.10")
	reachesNot(t, one, other, "10.50.0.12", "the Pod is on another VLAN")
}

func TestPodsOnVXLAN(t *testing.T) {
	hosts := newTrunk(t, 3, true)
	var pods []string
	for i, host := range hosts {
		var peers []string
		for j := range hosts {
			if j != i {
				peers = append(peers, vtep(j).String())
			}
		}
		link := vxlanSpec("vx_backend", 700, vtep(i).String(), peers...)
		pods = append(pods, attachOn(t, host, link, Slave{PodInterface: PodInterface{V4: podAddress(i)}}))
	}
	for i := range pods {
		for j := range pods {
			if i != j {
				reaches(t, pods[i], pods[j], podAddress(j).Addr().String())
			}
		}
	}
	// Without its entry a node gets no broadcasts.
	k := openKernel(t, hosts[0])
	link := vxlanSpec("vx_backend", 700, vtep(0).String())
	err := k.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpUpdatePeers, Link: link, Drop: []netip.Addr{vtep(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if d := dump(t, hosts[0]); strings.Contains(d, "00:00:00:00:00:00 dst 192.0.2.2") || !strings.Contains(d, "00:00:00:00:00:00 dst 192.0.2.3") {
		t.Errorf("want one of two entries:\n%s", d)
	}
}

func podAddress(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 70, 0, byte(i + 1)}), 16)
}

// Pods cannot reach the host over its links.
func TestHostIsUnreachable(t *testing.T) {
	hosts := newTrunk(t, 1, true)
	pod := attachOn(t, hosts[0], vxlanSpec("vx_backend", 700, vtep(0).String()), Slave{PodInterface: PodInterface{V4: podAddress(0), V6: prefix("fd00:70::1/64")}})
	within(t, hosts[0], func(h *netlink.Handle) {
		list, err := h.AddrList(find(t, h, "vx_backend"), netlink.FAMILY_ALL)
		must(t, err)
		if len(list) > 0 {
			t.Errorf("the host link has addresses: %v", list)
		}
	})
	var all []netlink.Neigh
	within(t, pod, func(h *netlink.Handle) {
		conn, err := net.Dial("udp6", "[ff02::1%eth1]:9")
		must(t, err)
		_, err = conn.Write([]byte("probe"))
		must(t, err)
		must(t, conn.Close())
		all, err = h.NeighList(find(t, h, "eth1").Attrs().Index, netlink.FAMILY_V6)
		must(t, err)
	})
	for _, n := range all {
		if n.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE) != 0 {
			t.Errorf("got an answer from %s", n.IP)
		}
	}
}

// reaches checks that a datagram from one Pod to an address of another is answered.
func reaches(t *testing.T, from, to, addr string) {
	t.Helper()
	if !echoes(t, from, to, addr, time.Minute) {
		t.Errorf("no answer from %s", addr)
	}
}

func reachesNot(t *testing.T, from, to, addr, reason string) {
	t.Helper()
	if echoes(t, from, to, addr, 300*time.Millisecond) {
		t.Errorf("%s answered: %s", addr, reason)
	}
}

func echoes(t *testing.T, from, to, addr string, timeout time.Duration) bool {
	t.Helper()
	var server net.PacketConn
	inside(t, to, func() {
		var err error
		server, err = net.ListenPacket("udp", net.JoinHostPort(addr, "0"))
		must(t, err)
	})
	defer server.Close()
	go func() {
		buf := make([]byte, 64)
		for {
			n, peer, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buf[:n], peer) // lost datagrams are sent again
		}
	}()
	var client net.Conn
	inside(t, from, func() {
		var err error
		client, err = net.Dial("udp", server.LocalAddr().String())
		must(t, err)
	})
	defer client.Close()
	buf := make([]byte, 64)
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if _, err := client.Write([]byte("ping")); err != nil {
			continue // a delayed "host unreachable"
		}
		_ = client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := client.Read(buf); err == nil {
			return true
		}
	}
	return false
}
