// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// attacked has two nodes with a VXLAN and a Pod of it on each. The attackers are a host of the
// underlay that is no node, and an ordinary Pod on the first node.
type attacked struct {
	nodes    [2]string
	vteps    [2]netip.Addr
	kernels  [2]*Host
	filters  [2]*firewall.Firewall
	victims  [2]string
	macs     [2]net.HardwareAddr
	outsider string
	pod      string
	// got are the payloads that reached the victims.
	got chan string
}

const (
	victimPort = 7777
	attackVNI  = 700
)

// newAttacked creates the nodes; with six, their VTEPs are IPv6.
func newAttacked(t *testing.T, six bool) *attacked {
	t.Helper()
	hosts, _ := newSwitch(t, 3, false)
	a := &attacked{nodes: [2]string(hosts[:2]), outsider: hosts[2], got: make(chan string, 1000)}
	f := &fleet{net: vxlanNetwork("backend", attackVNI), status: map[string]v1.NodeNetworkStatus{}, watchers: map[string]*netwatcher.Reconciler{}}
	for i, host := range hosts {
		address := underlay(i, six)
		inside(t, host, func() {
			must(t, sysctl{"ipv6/conf/ens4/disable_ipv6", "0"}.write())
			must(t, sysctl{"ipv6/conf/ens4/accept_dad", "0"}.write())
			must(t, sysctl{"ipv6/conf/all/forwarding", "1"}.write())
			must(t, sysctl{"ipv4/ip_forward", "1"}.write())
		})
		addAddress(t, host, "ens4", address)
		if i < 2 {
			a.vteps[i] = address.Addr()
		}
	}
	for i, host := range a.nodes {
		f.join(t, fmt.Sprint("node-", i), host)
		a.kernels[i], a.filters[i] = openKernel(t, host), openFirewall(t, host)
	}
	for i, host := range a.nodes {
		eventually(t, "the VXLAN with its peer", func() bool { return entries(t, host)[a.vteps[1-i].String()] })
		a.victims[i] = newNamespace(t)
		s := withDefaults(Slave{PodInterface: PodInterface{V4: podAddress(i)}, Parent: "vx_backend"}, a.victims[i])
		out, err := a.kernels[i].Slaves().Attach(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		a.macs[i] = mac(t, out.MAC)
		a.listen(t, i)
	}
	a.pod = newNamespace(t)
	cable(t, a.nodes[0], "cali0", a.pod, "eth0", 1500)
	a.connect(t, six)
	return a
}

func underlay(i int, six bool) netip.Prefix {
	if six {
		return netip.MustParsePrefix(fmt.Sprintf("2001:db8::%d/64", i+1))
	}
	return netip.PrefixFrom(vtep(i), 24)
}

// connect adds an address and routes to the ordinary Pod, and masquerading and a Service for each VTEP
// to its node, as kube-proxy does.
func (a *attacked) connect(t *testing.T, six bool) {
	t.Helper()
	node, pod, family, all := "10.244.0.1/24", "10.244.0.2/24", "ip", "0.0.0.0/0"
	services := [2]string{"10.96.0.1", "10.96.0.2"}
	if six {
		node, pod, family, all = "fd00:244::1/64", "fd00:244::2/64", "ip6", "::/0"
		services = [2]string{"fd00:96::1", "fd00:96::2"}
	}
	for ns, name := range map[string]string{a.nodes[0]: "cali0", a.pod: "eth0"} {
		inside(t, ns, func() {
			must(t, sysctl{"ipv6/conf/" + name + "/disable_ipv6", "0"}.write())
			must(t, sysctl{"ipv6/conf/" + name + "/accept_dad", "0"}.write())
		})
	}
	addAddress(t, a.nodes[0], "cali0", netip.MustParsePrefix(node))
	addAddress(t, a.pod, "eth0", netip.MustParsePrefix(pod))
	within(t, a.pod, func(h *netlink.Handle) {
		_, dst, err := net.ParseCIDR(all)
		must(t, err)
		must(t, h.RouteAdd(&netlink.Route{LinkIndex: find(t, h, "eth0").Attrs().Index, Dst: dst, Gw: netip.MustParsePrefix(node).Addr().AsSlice()}))
	})
	nft(t, a.nodes[0], fmt.Sprintf(`table %[1]s proxy {
		chain pre { type nat hook prerouting priority -100;
			%[1]s daddr %[2]s udp dport 53 dnat to %[4]s
			%[1]s daddr %[3]s udp dport 53 dnat to %[5]s
		}
		chain post { type nat hook postrouting priority 100; oifname "ens4" masquerade; }
	}`, family, services[0], services[1], netip.AddrPortFrom(a.vteps[0], vxlanPort), netip.AddrPortFrom(a.vteps[1], vxlanPort)))
}

func nft(t *testing.T, ns, rules string) {
	t.Helper()
	inside(t, ns, func() {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("nft: %v: %s", err, out)
		}
	})
}

// listen forwards the payloads that the victim's program receives.
func (a *attacked) listen(t *testing.T, i int) {
	t.Helper()
	var conn net.PacketConn
	inside(t, a.victims[i], func() {
		var err error
		conn, err = net.ListenPacket("udp", fmt.Sprintf("%s:%d", podAddress(i).Addr(), victimPort))
		must(t, err)
	})
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 200)
		for {
			n, _, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			a.got <- string(buf[:n])
		}
	}()
}

// intruderMAC is the source of the inner frames, which a link could learn.
var intruderMAC = net.HardwareAddr{2, 0xba, 0xd0, 0, 0, 1}

// packet returns the UDP payload of a VXLAN packet: a frame to the program of victim i.
func (a *attacked) packet(i int, text string) []byte {
	p := []byte{8, 0, 0, 0}
	p = binary.BigEndian.AppendUint32(p, attackVNI<<8)
	p = append(append(append(p, a.macs[i]...), intruderMAC...), 8, 0)
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 70, 66, 6}
	ip = append(ip, podAddress(i).Addr().AsSlice()...)
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(text)))
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	udp := binary.BigEndian.AppendUint16(nil, 6666)
	udp = binary.BigEndian.AppendUint16(udp, victimPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(text)))
	return append(append(append(p, ip...), append(udp, 0, 0)...), text...)
}

// checksum is the checksum of RFC 1071.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, p := range parts {
		for i := 0; i < len(p); i += 2 {
			sum += uint32(p[i]) << 8
			if i+1 < len(p) {
				sum += uint32(p[i+1])
			}
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// send sends a datagram, as any program can.
func send(t *testing.T, from string, to netip.AddrPort, payload []byte) {
	t.Helper()
	inside(t, from, func() {
		conn, err := net.Dial("udp", to.String())
		must(t, err)
		defer conn.Close()
		_, err = conn.Write(payload)
		must(t, err)
	})
}

// forge sends an IP packet with any source, which requires CAP_NET_RAW. With firstBytes it sends two
// fragments, the first of that length.
func forge(t *testing.T, from string, src, dst netip.Addr, payload []byte, firstBytes int) {
	t.Helper()
	udp := binary.BigEndian.AppendUint16(nil, 50000)
	udp = binary.BigEndian.AppendUint16(udp, vxlanPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload)))
	udp = append(append(udp, 0, 0), payload...)
	pseudo := binary.BigEndian.AppendUint16([]byte{0, unix.IPPROTO_UDP}, uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], checksum(src.AsSlice(), dst.AsSlice(), pseudo, udp))
	pieces := [][]byte{udp}
	if firstBytes > 0 {
		pieces = [][]byte{udp[:firstBytes], udp[firstBytes:]}
	}
	domain, sockaddr := unix.AF_INET, unix.Sockaddr(nil)
	if dst.Is4() {
		sockaddr = &unix.SockaddrInet4{Addr: dst.As4()}
	} else {
		domain, sockaddr = unix.AF_INET6, &unix.SockaddrInet6{Addr: dst.As16()}
	}
	inside(t, from, func() {
		fd, err := unix.Socket(domain, unix.SOCK_RAW, unix.IPPROTO_RAW)
		must(t, err)
		defer unix.Close(fd)
		offset := 0
		for i, p := range pieces {
			must(t, unix.Sendto(fd, append(ipHeader(src, dst, len(p), offset, i < len(pieces)-1), p...), 0, sockaddr))
			offset += len(p)
		}
	})
}

// ipHeader returns the header of a packet or fragment.
func ipHeader(src, dst netip.Addr, length, offset int, more bool) []byte {
	if src.Is4() {
		h := []byte{0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(20+length))
		binary.BigEndian.PutUint16(h[6:], uint16(offset/8))
		if more {
			h[6] |= 0x20
		}
		h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return h
	}
	h := []byte{0x60, 0, 0, 0, 0, 0, unix.IPPROTO_UDP, 64}
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	if offset > 0 || more {
		h[6] = unix.IPPROTO_FRAGMENT
		fragment := []byte{unix.IPPROTO_UDP, 0, 0, 0, 0, 0, 0x12, 0x34}
		binary.BigEndian.PutUint16(fragment[2:], uint16(offset))
		if more {
			fragment[3] |= 1
		}
		h, length = append(h, fragment...), length+8
	}
	binary.BigEndian.PutUint16(h[4:], uint16(length))
	return h
}

// drops returns how many packets the nodes have dropped.
func (a *attacked) drops() (n uint64) {
	for _, f := range a.filters {
		for _, count := range f.Dropped() {
			n += count
		}
	}
	return n
}

// attack sends a frame to victim i.
type attack struct {
	reason string
	do     func(t *testing.T, a *attacked, i int, payload []byte)
}

func attacks() map[string]attack {
	return map[string]attack{
		"Pod": {"An ordinary Pod sends to the VTEP.", func(t *testing.T, a *attacked, i int, p []byte) {
			t.Helper()
			send(t, a.pod, netip.AddrPortFrom(a.vteps[i], vxlanPort), p)
		}},
		"Service": {"An ordinary Pod sends to a Service for the VTEP.", func(t *testing.T, a *attacked, i int, p []byte) {
			t.Helper()
			service := [2]string{"10.96.0.1", "10.96.0.2"}[i]
			if a.vteps[0].Is6() {
				service = [2]string{"fd00:96::1", "fd00:96::2"}[i]
			}
			send(t, a.pod, netip.AddrPortFrom(netip.MustParseAddr(service), 53), p)
		}},
		"Outsider": {"A host of the underlay that is no node sends to the VTEP.", func(t *testing.T, a *attacked, i int, p []byte) {
			t.Helper()
			send(t, a.outsider, netip.AddrPortFrom(a.vteps[i], vxlanPort), p)
		}},
		"Spoofed": {"A Pod with CAP_NET_RAW sends with the other VTEP's address.", func(t *testing.T, a *attacked, i int, p []byte) {
			t.Helper()
			// The kernel itself drops packets with the address of the Pod's own node.
			forge(t, a.pod, a.vteps[1], a.vteps[i], p, 0)
		}},
		"Fragments": {"The first fragment ends before the VXLAN ID.", func(t *testing.T, a *attacked, i int, p []byte) {
			t.Helper()
			src := underlay(2, a.vteps[0].Is6()).Addr()
			forge(t, a.outsider, src, a.vteps[i], p, 8)
		}},
		"PodFragments": {"The first fragment of a Pod ends before the VXLAN ID.", func(t *testing.T, a *attacked, i int, p []byte) {
			t.Helper()
			src := netip.MustParseAddr("10.244.0.2")
			if a.vteps[0].Is6() {
				src = netip.MustParseAddr("fd00:244::2")
			}
			forge(t, a.pod, src, a.vteps[i], p, 8)
		}},
	}
}

// Only another node's VTEP can send a frame into a VXLAN, and is learned from.
func TestIntruders(t *testing.T) {
	for _, six := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[six], func(t *testing.T) {
			a := newAttacked(t, six)
			if !echoes(t, a.victims[0], a.victims[1], podAddress(1).Addr().String(), time.Minute) {
				t.Fatal("the network's own Pods do not reach each other")
			}
			for name, tc := range attacks() {
				for i := range a.nodes {
					t.Run(fmt.Sprint(name, i), func(t *testing.T) { a.checkBlocked(t, tc, i) })
				}
			}
			t.Run("Host", func(t *testing.T) {
				before := a.drops()
				send(t, a.nodes[0], netip.AddrPortFrom(a.vteps[0], vxlanPort), a.packet(0, "Host"))
				eventually(t, "a packet of the node through loopback", func() bool { return a.drops() > before || a.reached(t, "loopback") })
			})
			if !echoes(t, a.victims[0], a.victims[1], podAddress(1).Addr().String(), time.Minute) {
				t.Error("the network's own Pods do not reach each other after the attacks")
			}
		})
	}
}

func (a *attacked) checkBlocked(t *testing.T, tc attack, i int) {
	t.Helper()
	before := a.drops()
	tc.do(t, a, i, a.packet(i, t.Name()))
	// A packet is dropped and counted, or reaches a victim.
	eventually(t, tc.reason, func() bool { return a.reached(t, tc.reason) || a.drops() > before })
	a.reached(t, tc.reason)
}

// reached fails the test if a frame has reached a victim, or a link has learned an entry that is no
// node's.
func (a *attacked) reached(t *testing.T, reason string) bool {
	t.Helper()
	select {
	case text := <-a.got:
		t.Errorf("%s A frame reached a Pod of the network: %s", reason, text)
	default:
	}
	for _, node := range a.kernels {
		state, err := node.Links().State(t.Context())
		must(t, err)
		for _, l := range state.Links {
			if i := slices.IndexFunc(l.Learned, func(v netip.Addr) bool { return !slices.Contains(a.vteps[:], v) }); i >= 0 {
				t.Errorf("%s Link %s learned %s at %s", reason, l.Name, intruderMAC, l.Learned[i])
			}
		}
	}
	return t.Failed()
}
