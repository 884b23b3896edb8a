// SPDX-License-Identifier: Apache-2.0

package network

import "net/netip"

// ipVersion is an address family: IPv4 or IPv6.
type ipVersion struct {
	bits int // of an address
	// addrRule, prefixRule and specialRule are accepted values and reserved prefixes for messages.
	addrRule, prefixRule, specialRule string
}

func ipv4() ipVersion {
	return ipVersion{
		bits:        32,
		addrRule:    `an IPv4 address, such as "10.0.0.10"`,
		prefixRule:  `an IPv4 subnet with its prefix length, such as "10.0.0.0/24"`,
		specialRule: "0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4 and 255.255.255.255/32",
	}
}

func ipv6() ipVersion {
	return ipVersion{
		bits:        128,
		addrRule:    `an IPv6 address, such as "fd00::10"`,
		prefixRule:  `an IPv6 subnet with its prefix length, such as "fd00::/64"`,
		specialRule: "::/80, fe80::/10 and ff00::/8",
	}
}

// parseAddr accepts the same addresses as CEL's ip(): without zones, IPv4-mapped IPv6 addresses and
// leading zeros.
func (v ipVersion) parseAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() || a.BitLen() != v.bits {
		return netip.Addr{}, false
	}
	return a, true
}

// parsePrefix accepts the same prefixes as CEL's cidr(), and masks them: DANM's manifests may have
// host bits set.
func (v ipVersion) parsePrefix(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() || p.Addr().BitLen() != v.bits {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// firstAddr returns the lowest address of a masked prefix.
func firstAddr(p netip.Prefix) netip.Addr { return p.Masked().Addr() }

// lastAddr returns the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
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

// hasBroadcast reports whether the first and the last address of p are not for hosts. They are for
// hosts in /31 and /127 (RFC 3021, RFC 6164), /32 and /128.
func hasBroadcast(p netip.Prefix) bool { return p.Addr().BitLen()-p.Bits() > 1 }
