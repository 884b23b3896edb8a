// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Where fields of a frame are, from its first byte.
const (
	etherSource = 6
	etherType   = 12
	arpHead     = 14
	arpHardware = 22
	arpAddress  = 28
	arpTarget   = 38
	ipv4Source  = 26
	ipv6Length  = 18
	ipv6Next    = 20
	ipv6Source  = 22
	ipv6Payload = 54
	// icmpTarget is the target of a neighbour solicitation or advertisement, ndOption the
	// option after it, and rsOption that of a router solicitation.
	icmpTarget = ipv6Payload + 8
	ndOption   = icmpTarget + 16
	rsOption   = ipv6Payload + 8
)

// ICMPv6 types.
const (
	multicastQuery, multicastReport, multicastDone, multicastReport2 = 130, 131, 132, 143
	routerSolicitation, routerAdvertisement                          = 133, 134
	neighbourSolicitation, neighbourAdvertisement, redirect          = 135, 136, 137
)

// Chains of the guard; each ends in a drop.
const (
	chainFrame    = "frame"
	chainARP      = "arp"
	chainIPv6     = "ip6"
	chainNoSource = "ip6-unspecified"
	chainDAD      = "duplicate-detection"
	chainICMPv6   = "icmp6"
	chainRS       = "router-solicitation"
	chainNS       = "neighbour-solicitation"
	chainNA       = "neighbour-advertisement"
	chainOptions  = "hop-by-hop"
	chainFragment = "fragment"
	chainFrom6    = "ip6-source"
)

// guardRules writes the chains that all guarded links share. A load past a frame's end, and
// one from a frame whose MAC header the kernel does not know, makes the rule not match: what
// no rule knows reaches the drop.
type guardRules struct{ ruleset }

func (r *guardRules) build() {
	for _, c := range []struct {
		name  string
		rules func(chain *nftables.Chain)
	}{
		// A chain comes after those that it leads to.
		{chainFragment, r.fragment}, {chainOptions, r.hopByHop}, {chainNA, r.advertisement}, {chainNS, r.solicitation},
		{chainRS, r.routerSolicitation}, {chainICMPv6, r.icmp6}, {chainFrom6, r.fromAddress}, {chainDAD, r.duplicateDetection},
		{chainNoSource, r.fromNone}, {chainIPv6, r.ipv6}, {chainARP, r.arp}, {chainFrame, r.frame},
	} {
		chain := r.conn.AddChain(&nftables.Chain{Name: c.name, Table: r.table})
		c.rules(chain)
		r.rule(chain, exprs{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}})
	}
}

// guard has all frames that leave by the link checked.
func (r *guardRules) guard(link string) {
	policy := nftables.ChainPolicyAccept // a frame that meets the chain before its rule does
	base := r.conn.AddChain(&nftables.Chain{
		Name: guardedPrefix + link, Table: r.table, Type: nftables.ChainTypeFilter, Device: link,
		Hooknum: nftables.ChainHookEgress, Priority: nftables.ChainPriorityRef(priority), Policy: &policy,
	})
	r.rule(base, leadTo(chainFrame))
}

// frame drops what is neither IP nor ARP, tagged frames among it.
func (r *guardRules) frame(c *nftables.Chain) {
	r.rule(c, bytesAt(etherType, 0x08, 0x00), r.owns(setV4, etherSource, ipv4Source, 4), accept())
	r.rule(c, bytesAt(etherType, 0x86, 0xdd), leadTo(chainIPv6))
	r.rule(c, bytesAt(etherType, 0x08, 0x06), bytesAt(arpHead, 0, 1, 0x08, 0, 6, 4), leadTo(chainARP))
}

// arp lets requests, answers and announcements with the sender's own addresses pass, and
// probes (RFC 5227), which have no sender address, for them.
func (r *guardRules) arp(c *nftables.Chain) {
	r.rule(c, r.owns(setV4, etherSource, arpAddress, 4), r.owns(setV4, arpHardware, arpAddress, 4), accept())
	probe := concat(bytesAt(arpAddress, 0, 0, 0, 0), r.has(setMACs, arpHardware))
	r.rule(c, probe, r.owns(setV4, etherSource, arpTarget, 4), accept())
	r.rule(c, probe, r.has(setProbers, etherSource), accept())
}

func (r *guardRules) ipv6(c *nftables.Chain) {
	for _, own := range r.owns6(etherSource, ipv6Source) {
		r.rule(c, own, leadTo(chainFrom6))
	}
	r.rule(c, bytesAt(ipv6Source, make([]byte, 16)...), r.has(setMACs, etherSource), leadTo(chainNoSource))
}

// fromNone lets pass what an interface sends before it has an address: duplicate address
// detection, with or without a nonce (RFC 7527), and multicast reports.
func (r *guardRules) fromNone(c *nftables.Chain) {
	detection := concat(bytesAt(ipv6Next, unix.IPPROTO_ICMPV6), bytesAt(ipv6Payload, neighbourSolicitation))
	r.rule(c, detection, bytesAt(ipv6Length, 0, 24), leadTo(chainDAD))
	r.rule(c, detection, bytesAt(ipv6Length, 0, 32), bytesAt(ndOption, 14, 1), leadTo(chainDAD))
	r.rule(c, bytesAt(ipv6Next, unix.IPPROTO_HOPOPTS), leadTo(chainOptions))
}

func (r *guardRules) duplicateDetection(c *nftables.Chain) {
	for _, own := range r.owns6(etherSource, icmpTarget) {
		r.rule(c, own, accept())
	}
	r.rule(c, r.has(setProbers, etherSource), accept())
}

// fromAddress drops extension headers, which would hide neighbour discovery, but for those
// of multicast reports and fragments.
func (r *guardRules) fromAddress(c *nftables.Chain) {
	r.rule(c, bytesAt(ipv6Next, unix.IPPROTO_ICMPV6), leadTo(chainICMPv6))
	r.rule(c, bytesAt(ipv6Next, unix.IPPROTO_HOPOPTS), leadTo(chainOptions))
	r.rule(c, bytesAt(ipv6Next, unix.IPPROTO_FRAGMENT), leadTo(chainFragment))
	for _, next := range hiding() {
		r.rule(c, bytesAt(ipv6Next, next), dropIt())
	}
	r.rule(c, accept())
}

// hopByHop lets multicast listener reports pass, whose header has 8 bytes.
func (r *guardRules) hopByHop(c *nftables.Chain) {
	for _, kind := range []byte{multicastReport, multicastDone, multicastReport2} {
		r.rule(c, bytesAt(ipv6Payload, unix.IPPROTO_ICMPV6, 0), bytesAt(ipv6Payload+8, kind), accept())
	}
}

// fragment drops neighbour discovery in fragments, which RFC 6980 forbids. What is in a
// packet is said by its first fragment.
func (r *guardRules) fragment(c *nftables.Chain) {
	for _, next := range hiding() {
		r.rule(c, bytesAt(ipv6Payload, next), dropIt())
	}
	first := concat(load(1, ipv6Payload+2, 2),
		exprs{&expr.Bitwise{SourceRegister: register(1), DestRegister: register(1), Len: 2, Mask: []byte{0xff, 0xf8}, Xor: []byte{0, 0}}, equal(register(1), 0, 0)})
	for kind := byte(routerSolicitation); kind <= redirect; kind++ {
		r.rule(c, bytesAt(ipv6Payload, unix.IPPROTO_ICMPV6), first, bytesAt(ipv6Payload+8, kind), dropIt())
	}
	r.rule(c, accept())
}

// hiding are the extension headers that may be before an ICMPv6 message.
func hiding() []byte {
	return []byte{unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_AH, unix.IPPROTO_DSTOPTS, unix.IPPROTO_MH, 139, 140}
}

func (r *guardRules) icmp6(c *nftables.Chain) {
	kind := func(n byte) exprs { return bytesAt(ipv6Payload, n) }
	r.rule(c, kind(neighbourSolicitation), leadTo(chainNS))
	r.rule(c, kind(neighbourAdvertisement), leadTo(chainNA))
	r.rule(c, kind(routerSolicitation), leadTo(chainRS))
	for _, n := range []byte{routerAdvertisement, redirect, multicastQuery} { // a router's
		r.rule(c, kind(n), dropIt())
	}
	r.rule(c, accept())
}

// solicitation and the next two let pass messages without an option, or with the
// one that names the sender's MAC. The length keeps others from being behind it.
func (r *guardRules) solicitation(c *nftables.Chain) {
	r.rule(c, bytesAt(ipv6Length, 0, 24), accept())
	for _, own := range r.owns6(ndOption+2, ipv6Source) {
		r.rule(c, bytesAt(ipv6Length, 0, 32), bytesAt(ndOption, 1, 1), own, accept())
	}
}

func (r *guardRules) advertisement(c *nftables.Chain) {
	for _, own := range r.owns6(etherSource, icmpTarget) {
		r.rule(c, bytesAt(ipv6Length, 0, 24), own, accept())
	}
	for _, own := range r.owns6(ndOption+2, icmpTarget) {
		r.rule(c, bytesAt(ipv6Length, 0, 32), bytesAt(ndOption, 2, 1), own, accept())
	}
}

func (r *guardRules) routerSolicitation(c *nftables.Chain) {
	r.rule(c, bytesAt(ipv6Length, 0, 8), accept())
	for _, own := range r.owns6(rsOption+2, ipv6Source) {
		r.rule(c, bytesAt(ipv6Length, 0, 16), bytesAt(rsOption, 1, 1), own, accept())
	}
}

// has goes on if the MAC at the offset is in the set.
func (r *guardRules) has(set string, mac uint32) exprs {
	return concat(exprs{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register(1)}}, load(5, mac, 6), r.in(set))
}

// owns goes on if the MAC and the address at the offsets are in the set.
func (r *guardRules) owns(set string, mac, address, length uint32) exprs {
	return concat(exprs{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register(1)}}, load(5, mac, 6), load(7, address, length), r.in(set))
}

// owns6 are the two ways in which an IPv6 address is the MAC's.
func (r *guardRules) owns6(mac, address uint32) []exprs {
	masked := exprs{&expr.Bitwise{
		SourceRegister: register(7), DestRegister: register(7), Len: 16,
		Mask: []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 255, 255, 255}, Xor: make([]byte, 16),
	}}
	return []exprs{
		r.owns(setV6, mac, address, 16),
		concat(exprs{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register(1)}}, load(5, mac, 6), load(7, address, 16), masked, r.in(setLocal6)),
	}
}

func (r *guardRules) in(set string) exprs {
	return exprs{&expr.Lookup{SourceRegister: register(1), SetName: set}}
}
