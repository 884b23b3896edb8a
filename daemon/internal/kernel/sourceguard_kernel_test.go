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

// guarded is a Pod on a guarded link of a node, another Pod beside it and a third one on
// another node. A sniffer sees what leaves the node.
type guarded struct {
	guard                *firewall.SourceGuard
	link                 netwatcher.GuardedLink
	host, pod, near, far string
	own, nearMAC         net.HardwareAddr
	v4, v6, local        netip.Addr
	nearV4, nearV6       netip.Addr
	gateway4, gateway6   netip.Addr
	wire                 *sniffer
	kernel               *Kernel
	kind                 string
	// cannot are ways that the kernel does not know.
	cannot map[string]bool
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
	return Slave{V4: podAddress(i), V6: netip.MustParsePrefix(fmt.Sprintf("fd00:70::%d/64", i+1))}
}

func newGuarded(t *testing.T, kind string, near, far netwatcher.Spec) *guarded {
	t.Helper()
	hosts, sw := newSwitch(t, 2, true)
	a := &guarded{
		cannot: map[string]bool{}, host: hosts[0], guard: openGuard(t, hosts[0]), kernel: openKernel(t, hosts[0]), kind: kind, link: netwatcher.GuardedLink{Name: near.Name},
		gateway4: netip.MustParseAddr("10.70.255.254"), gateway6: netip.MustParseAddr("fd00:70::fffe"),
		v4: podAddress(0).Addr(), v6: guardedSlave(0).V6.Addr(), nearV4: podAddress(1).Addr(), nearV6: guardedSlave(1).V6.Addr(),
	}
	if err := a.kernel.Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: near}); err != nil {
		t.Fatal(err)
	}
	within(t, hosts[0], func(h *netlink.Handle) { a.link.MAC = find(t, h, near.Name).Attrs().HardwareAddr })
	a.apply(t, true)
	a.pod, a.own = a.attach(t, 0)
	a.near, a.nearMAC = a.attach(t, 1)
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
	a.far = attachOn(t, hosts[1], far, s)
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

// attach makes a Pod with its sources permitted.
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
	if _, err := a.kernel.Attach(t.Context(), withDefaults(s, pod)); err != nil {
		t.Fatal(err)
	}
	return pod, mac
}

// forged is a frame that a Pod may send, or not.
type forged struct {
	reason string
	frame  func(a *guarded) []byte
	// kind of slave that it is about; any when empty.
	kind string
}

func (f forged) of(kind string) bool { return f.kind == "" || f.kind == kind }

func etherFrame(src net.HardwareAddr, kind uint16, body ...[]byte) []byte {
	return slices.Concat(broadcastMAC, src, binary.BigEndian.AppendUint16(nil, kind), slices.Concat(body...))
}

func ipv4From(a *guarded, mac net.HardwareAddr, src netip.Addr) []byte {
	return etherFrame(mac, unix.ETH_P_IP, ipHeader(src, a.gateway4, 40, 0, false), make([]byte, 40))
}

func arpFrom(eth, sha net.HardwareAddr, op byte, spa, tpa netip.Addr) []byte {
	return etherFrame(eth, unix.ETH_P_ARP, []byte{0, 1, 8, 0, 6, 4, 0, op}, sha, spa.AsSlice(), make([]byte, 6), tpa.AsSlice())
}

// ipv6From is a packet whose next header is the first byte's, to all nodes.
func ipv6From(mac net.HardwareAddr, src netip.Addr, next byte, body ...[]byte) []byte {
	all := slices.Concat(body...)
	head := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(all)))
	return etherFrame(mac, unix.ETH_P_IPV6, head, []byte{next, 255}, src.AsSlice(), netip.IPv6LinkLocalAllNodes().AsSlice(), all)
}

func icmp(kind byte, body ...[]byte) []byte {
	return slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, slices.Concat(body...))
}

func macOption(kind byte, mac net.HardwareAddr) []byte { return append([]byte{kind, 1}, mac...) }

func claims(a *guarded, target netip.Addr) []byte {
	return icmp(136, target.AsSlice(), macOption(2, a.own))
}

var (
	none4 = netip.IPv4Unspecified()
	none6 = netip.IPv6Unspecified()
)

func spoofs() map[string]forged {
	neighbour := func(body func(a *guarded) []byte) func(*guarded) []byte {
		return func(a *guarded) []byte { return ipv6From(a.own, a.v6, unix.IPPROTO_ICMPV6, body(a)) }
	}
	return map[string]forged{
		"IPv4": {reason: "the gateway's address", frame: func(a *guarded) []byte { return ipv4From(a, a.own, a.gateway4) }},
		"MAC":  {reason: "another machine's MAC", frame: func(a *guarded) []byte { return ipv4From(a, intruderMAC, a.v4) }},
		"NearIPv4": {reason: "the address of a Pod beside it", kind: MACVLAN,
			frame: func(a *guarded) []byte { return ipv4From(a, a.own, a.nearV4) }},
		"NearIPv6": {reason: "the address of a Pod beside it", kind: MACVLAN,
			frame: func(a *guarded) []byte { return ipv6From(a.own, a.nearV6, unix.IPPROTO_NONE) }},
		"NoIPv4": {reason: "no address at all, as a DHCP client", frame: func(a *guarded) []byte { return ipv4From(a, a.own, none4) }},
		"IPv6":   {reason: "the gateway's address", frame: func(a *guarded) []byte { return ipv6From(a.own, a.gateway6, unix.IPPROTO_NONE, make([]byte, 20)) }},
		"MAC6":   {reason: "another machine's MAC", frame: func(a *guarded) []byte { return ipv6From(intruderMAC, a.v6, unix.IPPROTO_NONE, make([]byte, 20)) }},
		"NoIPv6": {reason: "no address, and no detection of duplicates", frame: func(a *guarded) []byte { return ipv6From(a.own, none6, unix.IPPROTO_UDP, make([]byte, 20)) }},
		"OtherLinkLocal": {reason: "a router's link-local address", frame: func(a *guarded) []byte {
			return ipv6From(a.own, netip.MustParseAddr("fe80::1"), unix.IPPROTO_NONE, make([]byte, 20))
		}},
		"ARPAnswer":  {reason: "is the gateway", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 2, a.gateway4, a.v4) }},
		"ARPRequest": {reason: "asks as the gateway", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, a.gateway4, a.v4) }},
		"ARPMAC":     {reason: "another's MAC in the answer", frame: func(a *guarded) []byte { return arpFrom(a.own, intruderMAC, 2, a.v4, a.gateway4) }},
		"ARPEther":   {reason: "another's MAC around the answer", frame: func(a *guarded) []byte { return arpFrom(intruderMAC, a.own, 2, a.v4, a.gateway4) }},
		"ARPNear": {reason: "is the Pod beside it", kind: MACVLAN,
			frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 2, a.nearV4, a.gateway4) }},
		"ARPProbe": {reason: "keeps others from the gateway's address", kind: MACVLAN,
			frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, none4, a.gateway4) }},
		"ARPOtherHardware": {reason: "an ARP packet of other lengths", frame: func(a *guarded) []byte {
			f := arpFrom(a.own, a.own, 2, a.v4, a.gateway4)
			f[18] = 8
			return append(f, make([]byte, 40)...)
		}},
		"Advertisement":       {reason: "is the gateway", frame: neighbour(func(a *guarded) []byte { return claims(a, a.gateway6) })},
		"BareAdvertisement":   {reason: "is the gateway, with the frame's MAC", frame: neighbour(func(a *guarded) []byte { return icmp(136, a.gateway6.AsSlice()) })},
		"AdvertisedMAC":       {reason: "another's MAC", frame: neighbour(func(a *guarded) []byte { return icmp(136, a.v6.AsSlice(), macOption(2, intruderMAC)) })},
		"SecondOption":        {reason: "another's MAC behind the own one", frame: neighbour(func(a *guarded) []byte { return slices.Concat(claims(a, a.v6), macOption(2, intruderMAC)) })},
		"FirstOption":         {reason: "another's MAC behind another option", frame: neighbour(func(a *guarded) []byte { return icmp(136, a.v6.AsSlice(), make([]byte, 8), macOption(2, intruderMAC)) })},
		"AdvertisedFromOther": {reason: "from the gateway", frame: func(a *guarded) []byte { return ipv6From(a.own, a.gateway6, unix.IPPROTO_ICMPV6, claims(a, a.v6)) }},
		"BehindOptions": {reason: "behind destination options", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_DSTOPTS, []byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, claims(a, a.gateway6))
		}},
		"BehindHopByHop": {reason: "behind hop-by-hop options", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_HOPOPTS, []byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, claims(a, a.gateway6))
		}},
		"BehindLongHopByHop": {reason: "behind options that look like a report", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_HOPOPTS, []byte{unix.IPPROTO_ICMPV6, 1, 1, 12, 0, 0, 0, 0, 143, 0, 0, 0, 0, 0, 0, 0}, claims(a, a.gateway6))
		}},
		"InFragment": {reason: "in a fragment", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_FRAGMENT, []byte{unix.IPPROTO_ICMPV6, 0, 0, 0, 0, 0, 0, 1}, claims(a, a.gateway6))
		}},
		"InFragmentBehindOptions": {reason: "behind options in a fragment", frame: func(a *guarded) []byte {
			return ipv6From(a.own, a.v6, unix.IPPROTO_FRAGMENT, []byte{unix.IPPROTO_DSTOPTS, 0, 0, 0, 0, 0, 0, 1}, []byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, claims(a, a.gateway6))
		}},
		"SolicitationMAC":       {reason: "asks with another's MAC", frame: neighbour(func(a *guarded) []byte { return icmp(135, a.gateway6.AsSlice(), macOption(1, intruderMAC)) })},
		"RouterSolicitationMAC": {reason: "asks with another's MAC", frame: neighbour(func(*guarded) []byte { return icmp(133, macOption(1, intruderMAC))[:16] })},
		"RouterAdvertisement":   {reason: "is a router", frame: neighbour(func(*guarded) []byte { return icmp(134, make([]byte, 8)) })},
		"Redirect":              {reason: "is a router", frame: neighbour(func(a *guarded) []byte { return icmp(137, a.gateway6.AsSlice(), a.v6.AsSlice()) })},
		"Detection": {reason: "keeps others from the gateway's address", kind: MACVLAN,
			frame: func(a *guarded) []byte {
				return ipv6From(a.own, none6, unix.IPPROTO_ICMPV6, icmp(135, a.gateway6.AsSlice()))
			}},
		"LLDP": {reason: "another protocol", frame: func(a *guarded) []byte { return etherFrame(a.own, 0x88cc, make([]byte, 50)) }},
		"SNAP": {reason: "IP in another encapsulation", frame: func(a *guarded) []byte {
			return etherFrame(a.own, 60, []byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, ipv4From(a, a.own, a.gateway4)[14:])
		}},
		"TaggedOwn": {reason: "a tag in front of an address of another", frame: func(a *guarded) []byte {
			return etherFrame(a.own, unix.ETH_P_8021Q, []byte{0, 0}, ipv4From(a, a.own, a.gateway4)[12:])
		}},
	}
}

func honest() map[string]forged {
	from6 := func(next byte, body func(a *guarded) []byte) func(*guarded) []byte {
		return func(a *guarded) []byte { return ipv6From(a.own, a.v6, next, body(a)) }
	}
	router := []byte{unix.IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0}
	return map[string]forged{
		"IPv4":          {reason: "its own", frame: func(a *guarded) []byte { return ipv4From(a, a.own, a.v4) }},
		"ARPRequest":    {reason: "its own", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, a.v4, a.gateway4) }},
		"ARPAnswer":     {reason: "its own", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 2, a.v4, a.gateway4) }},
		"ARPProbe":      {reason: "of its own address", frame: func(a *guarded) []byte { return arpFrom(a.own, a.own, 1, none4, a.v4) }},
		"IPv6":          {reason: "its own", frame: from6(unix.IPPROTO_UDP, func(*guarded) []byte { return make([]byte, 20) })},
		"LinkLocal":     {reason: "its own", frame: func(a *guarded) []byte { return ipv6From(a.own, a.local, unix.IPPROTO_UDP, make([]byte, 20)) }},
		"Echo":          {reason: "ICMPv6", frame: from6(unix.IPPROTO_ICMPV6, func(*guarded) []byte { return icmp(128, make([]byte, 30)) })},
		"Solicitation":  {reason: "asks", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return icmp(135, a.gateway6.AsSlice(), macOption(1, a.own)) })},
		"Advertisement": {reason: "answers", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return claims(a, a.v6) })},
		"LocalAnswer":   {reason: "answers for its link-local address", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return claims(a, a.local) })},
		"Router":        {reason: "asks for routers", frame: from6(unix.IPPROTO_ICMPV6, func(a *guarded) []byte { return icmp(133, macOption(1, a.own)) })},
		"Detection":     {reason: "of its own address", frame: func(a *guarded) []byte { return ipv6From(a.own, none6, unix.IPPROTO_ICMPV6, icmp(135, a.v6.AsSlice())) }},
		"LocalDetection": {reason: "of its link-local address, with a nonce", frame: func(a *guarded) []byte {
			return ipv6From(a.own, none6, unix.IPPROTO_ICMPV6, icmp(135, a.local.AsSlice(), []byte{14, 1, 1, 2, 3, 4, 5, 6}))
		}},
		"Report": {reason: "of groups", frame: from6(unix.IPPROTO_HOPOPTS, func(*guarded) []byte { return append(slices.Clone(router), icmp(143, make([]byte, 20))...) })},
		"EarlyReport": {reason: "before there is an address", frame: func(a *guarded) []byte {
			return ipv6From(a.own, none6, unix.IPPROTO_HOPOPTS, router, icmp(143, make([]byte, 20)))
		}},
		"Fragment": {reason: "of a datagram", frame: from6(unix.IPPROTO_FRAGMENT, func(*guarded) []byte {
			return append([]byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 1}, make([]byte, 40)...)
		})},
		"SecondFragment": {reason: "of an echo", frame: from6(unix.IPPROTO_FRAGMENT, func(*guarded) []byte {
			return append([]byte{unix.IPPROTO_ICMPV6, 0, 0, 0x10, 0, 0, 0, 1}, 136, 0, 0, 0, 0, 0, 0, 0)
		})},
	}
}

// way is how a program with CAP_NET_RAW sends a frame. It returns false where it cannot.
type way func(t *testing.T, pod string, frame []byte) bool

func ways() map[string]way {
	by := func(protocol uint16, bypass bool) way {
		return func(t *testing.T, pod string, frame []byte) bool {
			t.Helper()
			sendFrame(t, pod, frame, protocol, bypass)
			return true
		}
	}
	return map[string]way{
		"packet socket": by(0, false), "bypass": by(0, true), "says IP": by(unix.ETH_P_IP, false),
		"says ARP": by(unix.ETH_P_ARP, true), "says other": by(0x1234, false), "XDP": sendByXDP,
	}
}

// marked ends a frame with a text, behind what its headers say is in it.
func marked(frame []byte, text string) []byte { return append(slices.Clone(frame), text...) }

func eachGuardable(t *testing.T, do func(t *testing.T, kind string, near, far netwatcher.Spec)) {
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

// Nothing leaves the node in the name of another, in whatever way a Pod sends it; what a Pod
// sends by itself does.
func TestSourceGuard(t *testing.T) {
	eachGuardable(t, func(t *testing.T, kind string, near, far netwatcher.Spec) {
		t.Helper()
		a := newGuarded(t, kind, near, far)
		if !a.local.IsValid() {
			t.Fatal("the Pod has no link-local address")
		}
		for _, guarded := range []bool{true, false} { // without the guard all of it passes
			a.apply(t, guarded)
			reaches(t, a.pod, a.far, podAddress(2).Addr().String())
			reaches(t, a.far, a.pod, a.v4.String())
			reaches(t, a.pod, a.far, "fd00:70::3")
			reaches(t, a.far, a.near, a.nearV6.String())
			a.send(t, spoofs(), fmt.Sprint("spoof ", guarded))
			a.send(t, honest(), fmt.Sprint("honest ", guarded))
			a.check(t, honest(), fmt.Sprint("honest ", guarded), true)
			a.check(t, spoofs(), fmt.Sprint("spoof ", guarded), !guarded)
		}
	})
}

func (a *guarded) text(round, name, way string) string {
	return round + " " + name + " by " + way + "."
}

func (a *guarded) send(t *testing.T, frames map[string]forged, round string) {
	t.Helper()
	for name, f := range frames {
		for by, send := range ways() {
			if f.of(a.kind) && !send(t, a.pod, marked(f.frame(a), a.text(round, name, by))) {
				a.cannot[by] = true
			}
		}
	}
}

func (a *guarded) check(t *testing.T, frames map[string]forged, round string, pass bool) {
	t.Helper()
	for name, f := range frames {
		for by, send := range ways() {
			text := a.text(round, name, by)
			switch {
			case !f.of(a.kind), a.cannot[by]:
			case pass:
				eventually(t, text+" passes: "+f.reason, func() bool {
					if !a.wire.saw(text) {
						send(t, a.pod, marked(f.frame(a), text)) // a full queue loses frames
					}
					return a.wire.saw(text)
				})
			case a.wire.saw(text):
				t.Errorf("%s left the node: %s", text, f.reason)
			}
		}
	}
}

// What the node itself asks before a Pod gets an address passes the guard.
func TestSourceGuardPassesProbes(t *testing.T) {
	eachGuardable(t, func(t *testing.T, kind string, near, far netwatcher.Spec) {
		t.Helper()
		a := newGuarded(t, kind, near, far)
		there := []netip.Addr{podAddress(2).Addr(), guardedSlave(2).V6.Addr()}
		macs, err := a.kernel.Probe(t.Context(), near.Name, there)
		if err != nil || len(macs) != len(there) {
			t.Errorf("%v are in use on the other node; a probe found %v, %v", there, macs, err)
		}
	})
}

// The table stays when the daemon ends. After a restart of the daemon, a flush of the ruleset, a
// new link of the same name and the end of a Pod it has the sources of the running Pods.
func TestSourceGuardIsKept(t *testing.T) {
	needs(t, "vlan")
	a := newGuarded(t, MACVLAN, vlanSpec("storage.500", 500), vlanSpec("storage.500", 500))
	passes := func(when string, want bool, frame func() []byte) {
		t.Helper()
		text := when + "."
		a.kernelSends(t, marked(frame(), text), when)
		if a.wire.saw(text) != want {
			t.Errorf("%s: on the wire %v, want %v", when, !want, want)
		}
	}
	own := func() []byte { return ipv4From(a, a.own, a.v4) }
	forgedMAC := func() []byte { return ipv4From(a, intruderMAC, a.v4) }
	both := func(when string) {
		t.Helper()
		passes(when+": honest", true, own)
		passes(when+": forged", false, forgedMAC)
	}
	both("at first")

	again := openGuard(t, a.host)
	again.Restore(map[string]firewall.Source{"pod0": {Link: a.link.Name, MAC: a.own, V4: a.v4, V6: a.v6}})
	both("the daemon is away")
	keep := a.link
	keep.OnlyIfGuarded = true
	if changed, err := again.Apply(t.Context(), []netwatcher.GuardedLink{keep}); err != nil || !changed {
		t.Fatalf("a new daemon that knows no network takes the table over: changed %v, %v", changed, err)
	}
	a.guard = again
	both("a new daemon that knows no network")
	a.apply(t, true)
	both("a new daemon")
	if changed, err := again.Apply(t.Context(), []netwatcher.GuardedLink{a.link}); err != nil || changed {
		t.Errorf("the same again: changed %v, %v", changed, err)
	}

	nft(t, a.host, "flush ruleset")
	passes("flushed", true, forgedMAC)
	a.apply(t, true)
	both("written again")
	nft(t, a.host, "flush ruleset")
	if err := again.Permit("pod0", firewall.Source{Link: a.link.Name, MAC: a.own, V4: a.v4, V6: a.v6}, true); err != nil {
		t.Fatal(err)
	}
	both("flushed before a Pod came")
	nft(t, a.host, "flush chain netdev patchbay frame")
	a.apply(t, true)
	both("a chain was changed")
	a.remake(t, vlanSpec("storage.500", 500))
	both("the link was made anew")

	again.Revoke(a.link.Name, "pod0")
	passes("the Pod has left", false, own)
	if err := again.Permit("pod0", firewall.Source{Link: a.link.Name, MAC: a.own, V4: a.v4, V6: a.v6}, true); err != nil {
		t.Fatal(err)
	}
	both("it is back")
	a.apply(t, false)
	passes("off", true, forgedMAC)
	a.apply(t, true)
	both("on while the Pod runs")
	if err := again.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tables := nftList(t, a.host); strings.Contains(tables, "netdev") {
		t.Errorf("left behind: %s", tables)
	}
}

// A Pod's interfaces on one link send with each other's addresses: the kernel chooses the
// interface by the destination. Those of another Pod stay another's.
func TestSourceGuardKnowsPods(t *testing.T) {
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
			a.kernelSends(t, marked(frame, text+"."), text)
			if a.wire.saw(text+".") != want {
				t.Errorf("%s on the wire: %v, want %v", text, !want, want)
			}
		}
	}
	permit("pod0", first)
	passes("not yet", false)
	permit("pod0b", second)
	passes("both interfaces", true)
	a.apply(t, true)
	passes("after a round", true)
	a.guard.Revoke(a.link.Name, "pod0b")
	passes("the second one is gone", false)
	second.Pod = "another"
	permit("pod0b", second)
	a.apply(t, true)
	passes("another Pod's", false)
}

// remake makes the link anew, and the first Pod's interface on it.
func (a *guarded) remake(t *testing.T, spec netwatcher.Spec) {
	t.Helper()
	within(t, a.host, func(h *netlink.Handle) { must(t, h.LinkDel(find(t, h, spec.Name))) })
	must(t, a.kernel.Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: spec}))
	within(t, a.host, func(h *netlink.Handle) { a.link.MAC = find(t, h, spec.Name).Attrs().HardwareAddr })
	a.apply(t, true)
	a.pod, a.own = a.attach(t, 0)
}

// kernelSends sends a frame, and returns when one that was sent after it has arrived.
func (a *guarded) kernelSends(t *testing.T, frame []byte, when string) {
	t.Helper()
	sendFrame(t, a.pod, frame, 0, false)
	after := "after " + when + "!"
	a.kernelMarks(t, after)
}

// kernelMarks sends by the link itself, which may send without an address: its MAC may probe.
func (a *guarded) kernelMarks(t *testing.T, text string) {
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

// What a guarded Pod costs.
func BenchmarkPermit(b *testing.B) {
	host, _ := newHost(b, 1500)
	k, g := openKernel(b, host), openGuard(b, host)
	if err := k.Apply(b.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: vlanSpec("storage.500", 500)}); err != nil {
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
