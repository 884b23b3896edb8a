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

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// guarded has a Pod on a guarded link of a node, a second Pod on the same link, and a third Pod on
// another node. A sniffer records the frames that leave the node.
type guarded struct {
	guard                        *firewall.SourceGuard
	link                         netwatcher.GuardedLink
	host, pod, neighbour, remote string
	own, neighbourMAC            net.HardwareAddr
	v4, v6, local                netip.Addr
	neighbourV4, neighbourV6     netip.Addr
	gateway4, gateway6           netip.Addr
	wire                         *sniffer
	kernel                       *Host
	kind                         string
	// unsupported are the send functions that the kernel does not support.
	unsupported map[string]bool
}

func openGuard(tb testing.TB, host string) *firewall.SourceGuard {
	tb.Helper()
	g, err := firewall.OpenSourceGuard(host)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { must(tb, g.Close()) })
	return g
}

func guardedSlave(i int) Slave {
	return Slave{PodInterface: PodInterface{V4: podAddress(i), V6: netip.MustParsePrefix(fmt.Sprintf("fd00:70::%d/64", i+1))}}
}

func newGuarded(t *testing.T, kind string, local, remote netwatcher.Spec) *guarded {
	t.Helper()
	hosts, sw := newSwitch(t, 2, true)
	a := &guarded{
		unsupported: map[string]bool{}, host: hosts[0], guard: openGuard(t, hosts[0]), kernel: openKernel(t, hosts[0]), kind: kind, link: netwatcher.GuardedLink{Name: local.Name},
		gateway4: netip.MustParseAddr("10.70.255.254"), gateway6: netip.MustParseAddr("fd00:70::fffe"),
		v4: podAddress(0).Addr(), v6: guardedSlave(0).V6.Addr(), neighbourV4: podAddress(1).Addr(), neighbourV6: guardedSlave(1).V6.Addr(),
	}
	if err := a.kernel.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: local}); err != nil {
		t.Fatal(err)
	}
	within(t, hosts[0], func(h *netlink.Handle) { a.link.MAC = find(t, h, local.Name).Attrs().HardwareAddr })
	a.apply(t, true)
	a.pod, a.own = a.attach(t, 0)
	a.neighbour, a.neighbourMAC = a.attach(t, 1)
	within(t, a.pod, func(h *netlink.Handle) {
		list, err := h.AddrList(find(t, h, "eth1"), netlink.FAMILY_V6)
		must(t, err)
		for _, l := range list {
			if a6, _ := netip.AddrFromSlice(l.IP); a6.IsLinkLocalUnicast() {
				a.local = a6
			}
		}
	})
	s := guardedSlave(2)
	s.Kind = MACVLAN
	a.remote = attachOn(t, hosts[1], remote, s)
	a.wire = newSniffer(t, sw, "port1")
	return a
}

func (a *guarded) apply(t *testing.T, on bool) {
	t.Helper()
	var links []netwatcher.GuardedLink
	if on {
		links = append(links, a.link)
	}
	if _, err := a.guard.Apply(t.Context(), links); err != nil {
		t.Fatal(err)
	}
}

// attach permits the sources of a Pod and attaches it.
func (a *guarded) attach(t *testing.T, i int) (pod string, mac net.HardwareAddr) {
	t.Helper()
	s := guardedSlave(i)
	s.Kind, s.Parent = a.kind, a.link.Name
	source := firewall.Source{Link: a.link.Name, V4: s.V4.Addr(), V6: s.V6.Addr()}
	mac = a.link.MAC
	if a.kind == MACVLAN {
		mac = RandomMAC()
		s.MAC, source.MAC = mac, mac
	}
	if err := a.guard.Permit(fmt.Sprint("pod", i), source, true); err != nil {
		t.Fatal(err)
	}
	pod = newNamespace(t)
	if _, err := a.kernel.Slaves().Attach(t.Context(), withDefaults(s, pod)); err != nil {
		t.Fatal(err)
	}
	return pod, mac
}

// testFrame is a frame that a Pod sends.
type testFrame struct {
	reason string
	frame  func(a *guarded) []byte
	// kind of slave for which the frame is sent; empty for any.
	kind string
}

func (f testFrame) of(kind string) bool { return f.kind == "" || f.kind == kind }

func etherFrame(src net.HardwareAddr, kind uint16, body ...[]byte) []byte {
	return slices.Concat(broadcastMAC, src, binary.BigEndian.AppendUint16(nil, kind), slices.Concat(body...))
}

func ipv4From(a *guarded, mac net.HardwareAddr, src netip.Addr) []byte {
	return etherFrame(mac, unix.ETH_P_IP, ipHeader(src, a.gateway4, 40, 0, false), make([]byte, 40))
}

func arpFrom(eth, sha net.HardwareAddr, op byte, spa, tpa netip.Addr) []byte {
	return etherFrame(eth, unix.ETH_P_ARP, []byte{0, 1, 8, 0, 6, 4, 0, op}, sha, spa.AsSlice(), make([]byte, 6), tpa.AsSlice())
}

// ipv6From returns a packet to all nodes with the next header.
func ipv6From(mac net.HardwareAddr, src netip.Addr, next byte, body ...[]byte) []byte {
	all := slices.Concat(body...)
	head := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(all)))
	return etherFrame(mac, unix.ETH_P_IPV6, head, []byte{next, 255}, src.AsSlice(), netip.IPv6LinkLocalAllNodes().AsSlice(), all)
}

func icmp(kind byte, body ...[]byte) []byte {
	return slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, slices.Concat(body...))
}

func macOption(kind byte, mac net.HardwareAddr) []byte { return append([]byte{kind, 1}, mac...) }

// advertisement returns a neighbour advertisement of the target with the Pod's MAC.
func advertisement(a *guarded, target netip.Addr) []byte {
	return icmp(136, target.AsSlice(), macOption(2, a.own))
}

var (
	none4 = netip.IPv4Unspecified()
	none6 = netip.IPv6Unspecified()
)

func forgedFrames() map[string]testFrame {
	neighbour := func(body func(a *guarded) []byte) func(*guarded) []byte {
		return func(a *guarded) []byte { return ipv6From(a.own, a.v6, unix.IPPROTO_ICMPV6, body(a)) }
	}
	return map[string]testFrame{
		"IPv4": {reason: "The source is the gateway's address.", frame: func(a *guarded) []byte { return ipv4From(a, a.own, a.gateway4) }},
		"MAC":  {reason: "The source is another machine's MAC.", frame: func(a *guarded) []byte { return ipv4From(a, intruderMAC, a.v4) }},
		"NeighbourIPv4": {reason: "The source is another Pod's address.", kind: MACVLAN,
			frame: func(a *guarded) []byte { return ipv4From(a, a.own, a.neighbourV4) }},
		"NeighbourIPv6": {reason: "The source is another Pod's address.", kind: MACVLAN,
			frame: func(a *guarded) []byte { return ipv6From(a.own, a.neighbourV6, unix.IPPROTO_NONE) }},
		"NoIPv4": {reason: "The source is 0.0.0.0, as of a DHCP client.", frame: func(a *guarded) []byte { return ipv4From(a, a.own, none4) }},
		"IPv6":   {reason: "The source is the gateway's address.", frame: func(a *guarded) []byte { return ipv6From(a.own, a.gateway6, unix.IPPROTO_NONE, make([]byte, 20)) }},
		"MAC6":   {reason: "The source is another machine's MAC.", frame: func(a *guarded) []byte { return ipv6From(intruderMAC, a.v6, unix.IPPROTO_NONE, make([]byte, 20)) }},
		"NoIPv6": {reason: "The source is :: without duplicate address detection.", frame: func(a *guarded) []byte { return ipv6From(a.own, none6, unix.IPPROTO_UDP, make([]byte, 20)) }},
		"OtherLinkLocal": {reason: "The source is a router's link-local address.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, netip.MustParseAddr("fe80::1"), unix.IPPROTO_NONE, make([]byte, 20))
		}},
		"ARPAnswer":  {reason: "The sender claims the gateway's address.", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 2, a.gateway4, a.v4) }},
		"ARPRequest": {reason: "The sender claims the gateway's address.", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, a.gateway4, a.v4) }},
		"ARPMAC":     {reason: "The answer has another machine's MAC.", frame: func(a *guarded) []byte { return arpFrom(a.own, intruderMAC, 2, a.v4, a.gateway4) }},
		"ARPEther":   {reason: "The frame has another machine's MAC.", frame: func(a *guarded) []byte { return arpFrom(intruderMAC, a.own, 2, a.v4, a.gateway4) }},
		"ARPNeighbour": {reason: "The sender claims another Pod's address.", kind: MACVLAN,
			frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 2, a.neighbourV4, a.gateway4) }},
		"ARPProbe": {reason: "The probe keeps other machines from the gateway's address.", kind: MACVLAN,
			frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, none4, a.gateway4) }},
		"ARPOtherHardware": {reason: "The ARP packet has other lengths.", frame: func(a *guarded) []byte {
			f := arpFrom(a.own, a.own, 2, a.v4, a.gateway4)
			f[18] = 8
			return append(f, make([]byte, 40)...)
		}},
		"Advertisement":     {reason: "The target is the gateway's address.", frame: neighbour(func(a *guarded) []byte { return advertisement(a, a.gateway6) })},
		"BareAdvertisement": {reason: "The target is the gateway's address, without a MAC option.", frame: neighbour(func(a *guarded) []byte { return icmp(136, a.gateway6.AsSlice()) })},
		"AdvertisedMAC":     {reason: "The option has another machine's MAC.", frame: neighbour(func(a *guarded) []byte { return icmp(136, a.v6.AsSlice(), macOption(2, intruderMAC)) })},
		"SecondOption":      {reason: "A second option has another machine's MAC.", frame: neighbour(func(a *guarded) []byte { return slices.Concat(advertisement(a, a.v6), macOption(2, intruderMAC)) })},
		"FirstOption":       {reason: "Another machine's MAC follows another option.", frame: neighbour(func(a *guarded) []byte { return icmp(136, a.v6.AsSlice(), make([]byte, 8), macOption(2, intruderMAC)) })},
		"AdvertisedFromOther": {reason: "The source is the gateway's address.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.gateway6, unix.IPPROTO_ICMPV6, advertisement(a, a.v6))
		}},
		"BehindOptions": {reason: "The advertisement follows destination options.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_DSTOPTS, []byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, advertisement(a, a.gateway6))
		}},
		"BehindHopByHop": {reason: "The advertisement follows hop-by-hop options.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_HOPOPTS, []byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, advertisement(a, a.gateway6))
		}},
		"BehindLongHopByHop": {reason: "The advertisement follows options that look like a multicast report.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_HOPOPTS, []byte{unix.IPPROTO_ICMPV6, 1, 1, 12, 0, 0, 0, 0, 143, 0, 0, 0, 0, 0, 0, 0}, advertisement(a, a.gateway6))
		}},
		"InFragment": {reason: "The advertisement is in a fragment.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_FRAGMENT, []byte{unix.IPPROTO_ICMPV6, 0, 0, 0, 0, 0, 0, 1}, advertisement(a, a.gateway6))
		}},
		"InFragmentBehindOptions": {reason: "The advertisement follows options in a fragment.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_FRAGMENT, []byte{unix.IPPROTO_DSTOPTS, 0, 0, 0, 0, 0, 0, 1}, []byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, advertisement(a, a.gateway6))
		}},
		"SolicitationMAC":       {reason: "The option has another machine's MAC.", frame: neighbour(func(a *guarded) []byte { return icmp(135, a.gateway6.AsSlice(), macOption(1, intruderMAC)) })},
		"RouterSolicitationMAC": {reason: "The option has another machine's MAC.", frame: neighbour(func(*guarded) []byte { return icmp(133, macOption(1, intruderMAC))[:16] })},
		"RouterAdvertisement":   {reason: "A Pod is no router.", frame: neighbour(func(*guarded) []byte { return icmp(134, make([]byte, 8)) })},
		"Redirect":              {reason: "A Pod is no router.", frame: neighbour(func(a *guarded) []byte { return icmp(137, a.gateway6.AsSlice(), a.v6.AsSlice()) })},
		"Detection": {reason: "The detection keeps other machines from the gateway's address.", kind: MACVLAN,
			frame: func(a *guarded) []byte {
				return ipv6From(a.own, none6, unix.IPPROTO_ICMPV6, icmp(135, a.gateway6.AsSlice()))
			}},
		"LLDP": {reason: "The protocol is neither IP nor ARP.", frame: func(a *guarded) []byte { return etherFrame(a.own, 0x88cc, make([]byte, 50)) }},
		"SNAP": {reason: "IP has another encapsulation.", frame: func(a *guarded) []byte {
			return etherFrame(a.own, 60, []byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, ipv4From(a, a.own, a.gateway4)[14:])
		}},
		"Tagged": {reason: "A tag precedes a packet with the gateway's address.", frame: func(a *guarded) []byte {
			return etherFrame(a.own, unix.ETH_P_8021Q, []byte{0, 0}, ipv4From(a, a.own, a.gateway4)[12:])
		}},
	}
}

func validFrames() map[string]testFrame {
	from6 := func(next byte, body func(a *guarded) []byte) func(*guarded) []byte {
		return func(a *guarded) []byte { return ipv6From(a.own, a.v6, next, body(a)) }
	}
	router := []byte{unix.IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0}
	return map[string]testFrame{
		"IPv4":          {reason: "The source is the Pod's.", frame: func(a *guarded) []byte { return ipv4From(a, a.own, a.v4) }},
		"ARPRequest":    {reason: "The sender is the Pod's address.", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, a.v4, a.gateway4) }},
		"ARPAnswer":     {reason: "The sender is the Pod's address.", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 2, a.v4, a.gateway4) }},
		"ARPProbe":      {reason: "The probe is for the Pod's address.", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, none4, a.v4) }},
		"IPv6":          {reason: "The source is the Pod's.", frame: from6(unix.IPPROTO_UDP, func(*guarded) []byte { return make([]byte, 20) })},
		"LinkLocal":     {reason: "The source is the Pod's link-local address.", frame: func(a *guarded) []byte { return ipv6From(a.own, a.local, unix.IPPROTO_UDP, make([]byte, 20)) }},
		"Echo":          {reason: "The packet is an ICMPv6 echo.", frame: from6(unix.IPPROTO_ICMPV6, func(*guarded) []byte { return icmp(128, make([]byte, 30)) })},
		"Solicitation":  {reason: "The Pod solicits the gateway.", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return icmp(135, a.gateway6.AsSlice(), macOption(1, a.own)) })},
		"Advertisement": {reason: "The target is the Pod's address.", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return advertisement(a, a.v6) })},
		"LocalAnswer":   {reason: "The target is the Pod's link-local address.", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return advertisement(a, a.local) })},
		"Router":        {reason: "The Pod solicits routers.", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return icmp(133, macOption(1, a.own)) })},
		"Detection":     {reason: "The detection is for the Pod's address.", frame: func(a *guarded) []byte { return ipv6From(a.own, none6, unix.IPPROTO_ICMPV6, icmp(135, a.v6.AsSlice())) }},
		"LocalDetection": {reason: "The detection is for the Pod's link-local address, with a nonce.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, none6, unix.IPPROTO_ICMPV6, icmp(135, a.local.AsSlice(), []byte{14, 1, 1, 2, 3, 4, 5, 6}))
		}},
		"Report": {reason: "The Pod reports its multicast groups.", frame: from6(unix.IPPROTO_HOPOPTS, func(*guarded) []byte { return append(slices.Clone(router), icmp(143, make([]byte, 20))...) })},
		"EarlyReport": {reason: "The Pod reports groups before it has an address.", frame: func(a *guarded) []byte {
			return ipv6From(a.own, none6, unix.IPPROTO_HOPOPTS, router, icmp(143, make([]byte, 20)))
		}},
		"Fragment": {reason: "The packet is the first fragment of a datagram.", frame: from6(unix.IPPROTO_FRAGMENT, func(*guarded) []byte {
			return append([]byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 1}, make([]byte, 40)...)
		})},
		"SecondFragment": {reason: "The packet is a later fragment of an echo.", frame: from6(unix.IPPROTO_FRAGMENT, func(*guarded) []byte {
			return append([]byte{unix.IPPROTO_ICMPV6, 0, 0, 0x10, 0, 0, 0, 1}, 136, 0, 0, 0, 0, 0, 0, 0)
		})},
	}
}

// sendFunc sends a frame, as a program with CAP_NET_RAW can. It returns false if the kernel does not
// support it.
type sendFunc func(t *testing.T, pod string, frame []byte) bool

func sendFuncs() map[string]sendFunc {
	by := func(protocol uint16, bypass bool) sendFunc {
		return func(t *testing.T, pod string, frame []byte) bool {
			t.Helper()
			sendFrame(t, pod, frame, protocol, bypass)
			return true
		}
	}
	return map[string]sendFunc{
		"packet socket": by(0, false), "bypass": by(0, true), "protocol IP": by(unix.ETH_P_IP, false),
		"protocol ARP": by(unix.ETH_P_ARP, true), "other protocol": by(0x1234, false), "XDP": sendByXDP,
	}
}

// marked appends a text to a frame, after the payload by its headers.
func marked(frame []byte, text string) []byte { return append(slices.Clone(frame), text...) }

func eachGuardable(t *testing.T, do func(t *testing.T, kind string, local, remote netwatcher.Spec)) {
	t.Helper()
	needs(t, IPVLAN)
	needs(t, "vlan")
	for name, specs := range map[string][2]netwatcher.Spec{
		"VLAN":  {vlanSpec("storage.500", 500), vlanSpec("storage.500", 500)},
		"VXLAN": {vxlanSpec("vx_backend", 700, vtep(0).String(), vtep(1).String()), vxlanSpec("vx_backend", 700, vtep(1).String(), vtep(0).String())},
	} {
		for _, kind := range []string{IPVLAN, MACVLAN} {
			t.Run(name+"/"+kind, func(t *testing.T) { do(t, kind, specs[0], specs[1]) })
		}
	}
}

// No frame with another machine's source leaves the node, whatever function a Pod sends it with.
// Frames with the Pod's own source do.
func TestSourceGuard(t *testing.T) {
	eachGuardable(t, func(t *testing.T, kind string, local, remote netwatcher.Spec) {
		t.Helper()
		a := newGuarded(t, kind, local, remote)
		if !a.local.IsValid() {
			t.Fatal("the Pod has no link-local address")
		}
		for _, guarded := range []bool{true, false} { // without the guard all frames pass
			a.apply(t, guarded)
			reaches(t, a.pod, a.remote, podAddress(2).Addr().String())
			reaches(t, a.remote, a.pod, a.v4.String())
			reaches(t, a.pod, a.remote, "fd00:70::3")
			reaches(t, a.remote, a.neighbour, a.neighbourV6.String())
			a.send(t, forgedFrames(), fmt.Sprint("forged ", guarded))
			a.send(t, validFrames(), fmt.Sprint("valid ", guarded))
			a.check(t, validFrames(), fmt.Sprint("valid ", guarded), true)
			a.check(t, forgedFrames(), fmt.Sprint("forged ", guarded), !guarded)
		}
	})
}

func (a *guarded) text(set, name, by string) string {
	return set + " " + name + " by " + by + "."
}

func (a *guarded) send(t *testing.T, frames map[string]testFrame, round string) {
	t.Helper()
	for name, f := range frames {
		for by, send := range sendFuncs() {
			if f.of(a.kind) && !send(t, a.pod, marked(f.frame(a), a.text(round, name, by))) {
				a.unsupported[by] = true
			}
		}
	}
}

func (a *guarded) check(t *testing.T, frames map[string]testFrame, round string, pass bool) {
	t.Helper()
	for name, f := range frames {
		for by, send := range sendFuncs() {
			text := a.text(round, name, by)
			switch {
			case !f.of(a.kind), a.unsupported[by]:
			case pass:
				eventually(t, text+" passes: "+f.reason, func() bool {
					if !a.wire.saw(text) {
						send(t, a.pod, marked(f.frame(a), text)) // a full queue drops frames
					}
					return a.wire.saw(text)
				})
			case a.wire.saw(text):
				t.Errorf("%s left the node: %s", text, f.reason)
			}
		}
	}
}

// The node's own probes pass the guard.
func TestSourceGuardPassesProbes(t *testing.T) {
	eachGuardable(t, func(t *testing.T, kind string, local, remote netwatcher.Spec) {
		t.Helper()
		a := newGuarded(t, kind, local, remote)
		taken := []netip.Addr{podAddress(2).Addr(), guardedSlave(2).V6.Addr()}
		macs, err := a.kernel.Prober().Probe(t.Context(), local.Name, taken)
		if err != nil || len(macs) != len(taken) {
			t.Errorf("%v are in use on the other node; the probe found %v, %v", taken, macs, err)
		}
	})
}

// The table stays when the daemon ends. It has the sources of the running Pods after a restart of the
// daemon, a flush of the ruleset, a new link of the same name, and the end of a Pod.
func TestSourceGuardIsKept(t *testing.T) {
	needs(t, "vlan")
	a := newGuarded(t, MACVLAN, vlanSpec("storage.500", 500), vlanSpec("storage.500", 500))
	passes := func(when string, want bool, frame func() []byte) {
		t.Helper()
		text := when + "."
		a.sendAndWait(t, marked(frame(), text), when)
		if a.wire.saw(text) != want {
			t.Errorf("%s: on the wire %v, want %v", when, !want, want)
		}
	}
	own := func() []byte { return ipv4From(a, a.own, a.v4) }
	forgedMAC := func() []byte { return ipv4From(a, intruderMAC, a.v4) }
	both := func(when string) {
		t.Helper()
		passes(when+": valid", true, own)
		passes(when+": forged", false, forgedMAC)
	}
	both("at first")

	restarted := openGuard(t, a.host)
	restarted.Restore(map[string]firewall.Source{"pod0": {Link: a.link.Name, MAC: a.own, V4: a.v4, V6: a.v6}})
	both("without a daemon")
	keep := a.link
	keep.OnlyIfGuarded = true
	if changed, err := restarted.Apply(t.Context(), []netwatcher.GuardedLink{keep}); err != nil || !changed {
		t.Fatalf("a new daemon without networks takes the table over: changed %v, %v", changed, err)
	}
	a.guard = restarted
	both("a new daemon without networks")
	a.apply(t, true)
	both("a new daemon")
	if changed, err := restarted.Apply(t.Context(), []netwatcher.GuardedLink{a.link}); err != nil || changed {
		t.Errorf("equal links: changed %v, %v", changed, err)
	}

	nft(t, a.host, "flush ruleset")
	passes("flushed", true, forgedMAC)
	a.apply(t, true)
	both("written again")
	nft(t, a.host, "flush ruleset")
	if err := restarted.Permit("pod0", firewall.Source{Link: a.link.Name, MAC: a.own, V4: a.v4, V6: a.v6}, true); err != nil {
		t.Fatal(err)
	}
	both("flushed before a Pod attached")
	nft(t, a.host, "flush chain netdev patchbay frame")
	a.apply(t, true)
	both("a chain was changed")
	a.recreate(t, vlanSpec("storage.500", 500))
	both("the link was created again")

	restarted.Revoke(a.link.Name, "pod0")
	passes("the Pod has left", false, own)
	if err := restarted.Permit("pod0", firewall.Source{Link: a.link.Name, MAC: a.own, V4: a.v4, V6: a.v6}, true); err != nil {
		t.Fatal(err)
	}
	both("the Pod is permitted again")
	a.apply(t, false)
	passes("off", true, forgedMAC)
	a.apply(t, true)
	both("on while the Pod runs")
	if err := restarted.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tables := nftList(t, a.host); strings.Contains(tables, "netdev") {
		t.Errorf("left behind: %s", tables)
	}
}

// A Pod's interfaces on one link may send with each other's addresses, as the kernel chooses the
// interface by the destination. They may not send with another Pod's.
func TestSourceGuardSharesPodAddresses(t *testing.T) {
	needs(t, "vlan")
	a := newGuarded(t, MACVLAN, vlanSpec("storage.500", 500), vlanSpec("storage.500", 500))
	first := firewall.Source{Link: a.link.Name, Pod: "pod", MAC: a.own, V4: a.v4, V6: a.v6}
	second := firewall.Source{Link: a.link.Name, Pod: "pod", MAC: RandomMAC(), V4: podAddress(5).Addr(), V6: guardedSlave(5).V6.Addr()}
	permit := func(name string, s firewall.Source) { must(t, a.guard.Permit(name, s, true)) }
	passes := func(when string, want bool) {
		t.Helper()
		for name, frame := range map[string][]byte{
			"IPv4": ipv4From(a, a.own, second.V4),
			"IPv6": ipv6From(a.own, second.V6, unix.IPPROTO_UDP, make([]byte, 20)),
			"ARP":  arpFrom(a.own, a.own, 2, second.V4, a.gateway4),
		} {
			text := when + " by " + name
			a.sendAndWait(t, marked(frame, text+"."), text)
			if a.wire.saw(text+".") != want {
				t.Errorf("%s on the wire: %v, want %v", text, !want, want)
			}
		}
	}
	permit("pod0", first)
	passes("before", false)
	permit("pod0b", second)
	passes("both interfaces", true)
	a.apply(t, true)
	passes("after Apply", true)
	a.guard.Revoke(a.link.Name, "pod0b")
	passes("the second one is gone", false)
	second.Pod = "another"
	permit("pod0b", second)
	a.apply(t, true)
	passes("another Pod's", false)
}

// recreate creates the link and the first Pod's interface again.
func (a *guarded) recreate(t *testing.T, spec netwatcher.Spec) {
	t.Helper()
	within(t, a.host, func(h *netlink.Handle) { must(t, h.LinkDel(find(t, h, spec.Name))) })
	must(t, a.kernel.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: spec}))
	within(t, a.host, func(h *netlink.Handle) { a.link.MAC = find(t, h, spec.Name).Attrs().HardwareAddr })
	a.apply(t, true)
	a.pod, a.own = a.attach(t, 0)
}

// sendAndWait sends a frame, and returns when a later frame has arrived.
func (a *guarded) sendAndWait(t *testing.T, frame []byte, when string) {
	t.Helper()
	sendFrame(t, a.pod, frame, 0, false)
	after := "after " + when + "!"
	a.sendMarker(t, after)
}

// sendMarker sends a frame from the link itself, whose MAC may probe, until it has arrived.
func (a *guarded) sendMarker(t *testing.T, text string) {
	t.Helper()
	probe := marked(arpFrom(a.link.MAC, a.link.MAC, 1, none4, a.gateway4), text)
	eventually(t, text, func() bool {
		sendFrameBy(t, a.host, a.link.Name, probe, unix.ETH_P_ARP, false)
		return a.wire.saw(text)
	})
}

func nftList(t *testing.T, ns string) (out string) {
	t.Helper()
	inside(t, ns, func() {
		b, err := exec.Command("nft", "list", "tables").CombinedOutput()
		must(t, err)
		out = string(b)
	})
	return out
}

// BenchmarkPermit measures the guard's part of attaching and detaching a Pod.
func BenchmarkPermit(b *testing.B) {
	host, _ := newHost(b, 1500)
	k, g := openKernel(b, host), openGuard(b, host)
	if err := k.Links().Apply(b.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: vlanSpec("storage.500", 500)}); err != nil {
		b.Fatal(err)
	}
	if _, err := g.Apply(b.Context(), []netwatcher.GuardedLink{{Name: "storage.500", MAC: intruderMAC}}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := firewall.Source{Link: "storage.500", MAC: RandomMAC(), V4: podAddress(0).Addr(), V6: guardedSlave(0).V6.Addr()}
		if err := g.Permit("pod", s, true); err != nil {
			b.Fatal(err)
		}
		g.Revoke("storage.500", "pod")
	}
}
