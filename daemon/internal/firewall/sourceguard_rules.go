// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets of a frame's fields, from its first byte.
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
	// icmpTarget is the target of a neighbour solicitation or advertisement, ndOption the option
	// after it, and rsOption the option of a router solicitation.
	icmpTarget = ipv6Payload + 8
	ndOption   = icmpTarget + 16
	rsOption   = ipv6Payload + 8
)

// ICMPv6 types.
const (
	multicastQuery, multicastReport, multicastDone, multicastReportV2 = 130, 131, 132, 143
	routerSolicitation, routerAdvertisement                           = 133, 134
	neighbourSolicitation, neighbourAdvertisement, redirect           = 135, 136, 137
)

// Names of the shared chains; each chain ends with a drop.
const (
	chainFrame       = "frame"
	chainARP         = "arp"
	chainIPv6        = "ip6"
	chainUnspecified = "ip6-unspecified"
	chainDAD         = "duplicate-detection"
	chainICMPv6      = "icmp6"
	chainRS          = "router-solicitation"
	chainNS          = "neighbour-solicitation"
	chainNA          = "neighbour-advertisement"
	chainOptions     = "hop-by-hop"
	chainFragment    = "fragment"
	chainIPv6Source  = "ip6-source"
)

// sourceGuardRules writes the chains that all guarded links share. A rule does not match if it
// loads bytes past the frame's end, or from a frame whose MAC header the kernel does not know.
// A frame that no rule accepts reaches the drop at the chain's end.
type sourceGuardRules struct{ tableWriter }

func (r *sourceGuardRules) build() {
	for _, c := range []struct {
		name  string
		rules func(chain *nftables.Chain)
	}{
		// A chain is added after the chains that it leads to.
		{chainFragment, r.fragment}, {chainOptions, r.hopByHop}, {chainNA, r.advertisement}, {chainNS, r.solicitation},
		{chainRS, r.routerSolicitation}, {chainICMPv6, r.icmp6}, {chainIPv6Source, r.specifiedSource}, {chainDAD, r.duplicateDetection},
		{chainUnspecified, r.unspecifiedSource}, {chainIPv6, r.ipv6}, {chainARP, r.arp}, {chainFrame, r.frame},
	} {
		chain := r.conn.AddChain(&nftables.Chain{Name: c.name, Table: r.table})
		c.rules(chain)
		r.addRule(chain, exprs{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}})
	}
}

// addLinkChain adds the base chain that checks all frames that leave by the link.
func (r *sourceGuardRules) addLinkChain(link string) {
	policy := nftables.ChainPolicyAccept // a frame can meet the chain before it has its rule
	base := r.conn.AddChain(&nftables.Chain{
		Name: linkChainPrefix + link, Table: r.table, Type: nftables.ChainTypeFilter, Device: link,
		Hooknum: nftables.ChainHookEgress, Priority: nftables.ChainPriorityRef(priority), Policy: &policy,
	})
	r.addRule(base, verdictGoto(chainFrame))
}

// frame drops frames that are neither IP nor ARP, such as tagged frames.
func (r *sourceGuardRules) frame(c *nftables.Chain) {
	r.addRule(c, matchBytes(etherType, 0x08, 0x00), r.matchMACAndAddress(setV4, etherSource, ipv4Source, 4), verdictAccept())
	r.addRule(c, matchBytes(etherType, 0x86, 0xdd), verdictGoto(chainIPv6))
	r.addRule(c, matchBytes(etherType, 0x08, 0x06), matchBytes(arpHead, 0, 1, 0x08, 0, 6, 4), verdictGoto(chainARP))
}

// arp accepts requests, replies and announcements with the sender's own addresses, and probes for
// them (RFC 5227), which have no sender address.
func (r *sourceGuardRules) arp(c *nftables.Chain) {
	r.addRule(c, r.matchMACAndAddress(setV4, etherSource, arpAddress, 4), r.matchMACAndAddress(setV4, arpHardware, arpAddress, 4), verdictAccept())
	probe := concat(matchBytes(arpAddress, 0, 0, 0, 0), r.matchMAC(setMACs, arpHardware))
	r.addRule(c, probe, r.matchMACAndAddress(setV4, etherSource, arpTarget, 4), verdictAccept())
	r.addRule(c, probe, r.matchMAC(setProbers, etherSource), verdictAccept())
}

func (r *sourceGuardRules) ipv6(c *nftables.Chain) {
	for _, match := range r.matchMACAndIPv6(etherSource, ipv6Source) {
		r.addRule(c, match, verdictGoto(chainIPv6Source))
	}
	r.addRule(c, matchBytes(ipv6Source, make([]byte, 16)...), r.matchMAC(setMACs, etherSource), verdictGoto(chainUnspecified))
}

// unspecifiedSource accepts the messages that an interface sends before it has an address:
// duplicate address detection, with or without a nonce (RFC 7527), and multicast reports.
func (r *sourceGuardRules) unspecifiedSource(c *nftables.Chain) {
	detection := concat(matchBytes(ipv6Next, unix.IPPROTO_ICMPV6), matchBytes(ipv6Payload, neighbourSolicitation))
	r.addRule(c, detection, matchBytes(ipv6Length, 0, 24), verdictGoto(chainDAD))
	r.addRule(c, detection, matchBytes(ipv6Length, 0, 32), matchBytes(ndOption, 14, 1), verdictGoto(chainDAD))
	r.addRule(c, matchBytes(ipv6Next, unix.IPPROTO_HOPOPTS), verdictGoto(chainOptions))
}

func (r *sourceGuardRules) duplicateDetection(c *nftables.Chain) {
	for _, match := range r.matchMACAndIPv6(etherSource, icmpTarget) {
		r.addRule(c, match, verdictAccept())
	}
	r.addRule(c, r.matchMAC(setProbers, etherSource), verdictAccept())
}

// specifiedSource drops extension headers, which could hide neighbour discovery, except those of
// multicast reports and fragments.
func (r *sourceGuardRules) specifiedSource(c *nftables.Chain) {
	r.addRule(c, matchBytes(ipv6Next, unix.IPPROTO_ICMPV6), verdictGoto(chainICMPv6))
	r.addRule(c, matchBytes(ipv6Next, unix.IPPROTO_HOPOPTS), verdictGoto(chainOptions))
	r.addRule(c, matchBytes(ipv6Next, unix.IPPROTO_FRAGMENT), verdictGoto(chainFragment))
	for _, next := range extensionHeaders() {
		r.addRule(c, matchBytes(ipv6Next, next), dropCounted())
	}
	r.addRule(c, verdictAccept())
}

// hopByHop accepts multicast listener reports, whose header has 8 bytes.
func (r *sourceGuardRules) hopByHop(c *nftables.Chain) {
	for _, kind := range []byte{multicastReport, multicastDone, multicastReportV2} {
		r.addRule(c, matchBytes(ipv6Payload, unix.IPPROTO_ICMPV6, 0), matchBytes(ipv6Payload+8, kind), verdictAccept())
	}
}

// fragment drops neighbour discovery in fragments, which RFC 6980 forbids. The first fragment of
// a packet has the ICMPv6 type.
func (r *sourceGuardRules) fragment(c *nftables.Chain) {
	for _, next := range extensionHeaders() {
		r.addRule(c, matchBytes(ipv6Payload, next), dropCounted())
	}
	first := concat(loadBytes(1, ipv6Payload+2, 2),
		exprs{&expr.Bitwise{SourceRegister: register(1), DestRegister: register(1), Len: 2, Mask: []byte{0xff, 0xf8}, Xor: []byte{0, 0}}, matchRegister(register(1), 0, 0)})
	for kind := byte(routerSolicitation); kind <= redirect; kind++ {
		r.addRule(c, matchBytes(ipv6Payload, unix.IPPROTO_ICMPV6), first, matchBytes(ipv6Payload+8, kind), dropCounted())
	}
	r.addRule(c, verdictAccept())
}

// extensionHeaders are the extension headers that an ICMPv6 message may follow.
func extensionHeaders() []byte {
	return []byte{unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_AH, unix.IPPROTO_DSTOPTS, unix.IPPROTO_MH, 139, 140}
}

func (r *sourceGuardRules) icmp6(c *nftables.Chain) {
	kind := func(n byte) exprs { return matchBytes(ipv6Payload, n) }
	r.addRule(c, kind(neighbourSolicitation), verdictGoto(chainNS))
	r.addRule(c, kind(neighbourAdvertisement), verdictGoto(chainNA))
	r.addRule(c, kind(routerSolicitation), verdictGoto(chainRS))
	for _, n := range []byte{routerAdvertisement, redirect, multicastQuery} { // only routers send them
		r.addRule(c, kind(n), dropCounted())
	}
	r.addRule(c, verdictAccept())
}

// solicitation, advertisement and routerSolicitation accept messages without an option, or with
// one option that names the sender's MAC. They check the length, so that no other option follows.
func (r *sourceGuardRules) solicitation(c *nftables.Chain) {
	r.addRule(c, matchBytes(ipv6Length, 0, 24), verdictAccept())
	for _, match := range r.matchMACAndIPv6(ndOption+2, ipv6Source) {
		r.addRule(c, matchBytes(ipv6Length, 0, 32), matchBytes(ndOption, 1, 1), match, verdictAccept())
	}
}

func (r *sourceGuardRules) advertisement(c *nftables.Chain) {
	for _, match := range r.matchMACAndIPv6(etherSource, icmpTarget) {
		r.addRule(c, matchBytes(ipv6Length, 0, 24), match, verdictAccept())
	}
	for _, match := range r.matchMACAndIPv6(ndOption+2, icmpTarget) {
		r.addRule(c, matchBytes(ipv6Length, 0, 32), matchBytes(ndOption, 2, 1), match, verdictAccept())
	}
}

func (r *sourceGuardRules) routerSolicitation(c *nftables.Chain) {
	r.addRule(c, matchBytes(ipv6Length, 0, 8), verdictAccept())
	for _, match := range r.matchMACAndIPv6(rsOption+2, ipv6Source) {
		r.addRule(c, matchBytes(ipv6Length, 0, 16), matchBytes(rsOption, 1, 1), match, verdictAccept())
	}
}

// matchMAC matches if the set contains the link and the MAC at the offset.
func (r *sourceGuardRules) matchMAC(set string, mac uint32) exprs {
	return concat(exprs{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register(1)}}, loadBytes(5, mac, 6), r.matchSetNamed(set))
}

// matchMACAndAddress matches if the set contains the link and the MAC and address at the offsets.
func (r *sourceGuardRules) matchMACAndAddress(set string, mac, address, length uint32) exprs {
	return concat(exprs{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register(1)}}, loadBytes(5, mac, 6), loadBytes(7, address, length), r.matchSetNamed(set))
}

// matchMACAndIPv6 returns two matches, for the address as it is and for an IPVLAN slave's link-local
// address. One of them must match.
func (r *sourceGuardRules) matchMACAndIPv6(mac, address uint32) []exprs {
	masked := exprs{&expr.Bitwise{
		SourceRegister: register(7), DestRegister: register(7), Len: 16,
		Mask: []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 255, 255, 255}, Xor: make([]byte, 16),
	}}
	return []exprs{
		r.matchMACAndAddress(setV6, mac, address, 16),
		concat(exprs{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register(1)}}, loadBytes(5, mac, 6), loadBytes(7, address, 16), masked, r.matchSetNamed(setLinkLocal6)),
	}
}

func (r *sourceGuardRules) matchSetNamed(set string) exprs {
	return exprs{&expr.Lookup{SourceRegister: register(1), SetName: set}}
}
