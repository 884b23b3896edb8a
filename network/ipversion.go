// SPDX-License-Identifier: Apache-2.0

package network

import "net/netip"

// ipVersion is an address family as users know it.
type ipVersion struct {
	bits int // of an address
	// What is accepted, for errors.
	addrRule, prefixRule string
}

var (
	ipv4 = ipVersion{
		bits:       32,
		addrRule:   `an IPv4 address, such as "10.0.0.10"`,
		prefixRule: `an IPv4 subnet with its prefix length, such as "10.0.0.0/24"`,
	}
	ipv6 = ipVersion{
		bits:       128,
		addrRule:   `an IPv6 address, such as "fd00::10"`,
		prefixRule: `an IPv6 subnet with its prefix length, such as "fd00::/64"`,
	}
)

// parseAddr accepts what CEL's ip() does: no zone, no IPv4-mapped IPv6 address,
// no leading zeros.
func (v ipVersion) parseAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() || a.BitLen() != v.bits {
		return netip.Addr{}, false
	}
	return a, true
}

// parsePrefix accepts what CEL's cidr() does, and masks it: DANM's manifests may
// have host bits set.
func (v ipVersion) parsePrefix(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() || p.Addr().BitLen() != v.bits {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// first returns the lowest address of a masked prefix.
func first(p netip.Prefix) netip.Addr { return p.Masked().Addr() }

// last returns the highest address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		switch host := (i+1)*8 - p.Bits(); {
		case host >= 8:
			b[i] = 0xff
		case host > 0:
			b[i] |= 1<<host - 1
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// hasBroadcast reports whether the first and the last address of p are not for
// hosts: not so in /31 and /127 (RFC 3021, RFC 6164), /32 and /128.
func hasBroadcast(p netip.Prefix) bool { return p.Addr().BitLen()-p.Bits() > 1 }
