// SPDX-License-Identifier: Apache-2.0

// Package acd encodes and decodes the Ethernet frames of address conflict detection: the
// ARP probe of RFC 5227 and the neighbour solicitation of RFC 4862 (5.4). Neither has an
// address of the sender, so no neighbour's table changes. The package opens no socket.
package acd

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Numbers of IEEE 802.3, RFC 826, RFC 8200 and RFC 4861.
const (
	typeARP, typeIPv4, typeIPv6 = 0x0806, 0x0800, 0x86dd

	ethernetLen  = 14
	arpLen       = 28
	ipv6Len      = 40
	neighbourLen = 24 // of a solicitation or an advertisement, without options

	protocolICMPv6   = 58
	hopLimit         = 255 // the sender is on the link: a router would have lowered it
	typeSolicitation = 135
)

// TypeAdvertisement is the ICMPv6 type of a neighbour advertisement.
const TypeAdvertisement = 136

// ProbeFrame returns the frame that asks from mac whether another host has the address.
func ProbeFrame(mac net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() {
		return arpProbe(mac, a.As4())
	}
	return solicitation(mac, a.As16())
}

func ethernetHeader(to, from net.HardwareAddr, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(slices.Concat(to, from), kind)
}

// minFrameLen is Ethernet's minimum in bytes. On some links Linux does not find the header of
// a shorter frame that a packet socket sends, and a source guard drops the frame then.
const minFrameLen = 60

// arpProbe is an ARP request without a sender address (RFC 5227, 2.1.1).
func arpProbe(mac net.HardwareAddr, target [4]byte) []byte {
	f := ethernetHeader(net.HardwareAddr{255, 255, 255, 255, 255, 255}, mac, typeARP)
	f = append(f, 0, 1, typeIPv4>>8, typeIPv4&255, 6, 4, 0, 1)
	f = append(f, mac...)
	f = append(f, 0, 0, 0, 0) // sender
	f = append(f, 0, 0, 0, 0, 0, 0)
	f = append(f, target[:]...)
	return append(f, make([]byte, minFrameLen-len(f))...)
}

// solicitation is a neighbour solicitation from the unspecified address, which has no options.
func solicitation(mac net.HardwareAddr, target [16]byte) []byte {
	to := [16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]}
	icmp := append([]byte{typeSolicitation, 0, 0, 0, 0, 0, 0, 0}, target[:]...)
	binary.BigEndian.PutUint16(icmp[2:], ^checksum([16]byte{}, to, icmp))

	f := ethernetHeader(net.HardwareAddr{0x33, 0x33, to[12], to[13], to[14], to[15]}, mac, typeIPv6)
	f = append(f, 6<<4, 0, 0, 0, 0, neighbourLen, protocolICMPv6, hopLimit)
	f = append(f, make([]byte, 16)...)
	f = append(f, to[:]...)
	return append(f, icmp...)
}

// ParseClaim returns the address that the sender of a frame claims, and the sender's MAC. An
// ARP packet claims its sender address (RFC 5227, 2.1.1), a neighbour advertisement its
// target. It returns false for any other frame, also for another host's probe: that host has
// no address yet, and detects the use of ours.
func ParseClaim(frame []byte) (netip.Addr, net.HardwareAddr, bool) {
	if len(frame) < ethernetLen {
		return netip.Addr{}, nil, false
	}
	from, rest := net.HardwareAddr(frame[6:12]), frame[ethernetLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeARP:
		return parseARPClaim(rest)
	case typeIPv6:
		a, ok := parseAdvertisement(rest)
		return a, slices.Clone(from), ok
	}
	return netip.Addr{}, nil, false
}

func parseARPClaim(p []byte) (netip.Addr, net.HardwareAddr, bool) {
	if len(p) < arpLen || binary.BigEndian.Uint16(p) != 1 || binary.BigEndian.Uint16(p[2:]) != typeIPv4 || p[4] != 6 || p[5] != 4 {
		return netip.Addr{}, nil, false
	}
	a := netip.AddrFrom4([4]byte(p[14:18]))
	return a, slices.Clone(net.HardwareAddr(p[8:14])), !a.IsUnspecified()
}

// parseAdvertisement validates an advertisement by RFC 4861 (7.1.2) and returns its target.
func parseAdvertisement(p []byte) (netip.Addr, bool) {
	if len(p) < ipv6Len+neighbourLen || p[0]>>4 != 6 || p[6] != protocolICMPv6 || p[7] != hopLimit {
		return netip.Addr{}, false
	}
	n := int(binary.BigEndian.Uint16(p[4:]))
	if n < neighbourLen || n > len(p)-ipv6Len {
		return netip.Addr{}, false
	}
	icmp := p[ipv6Len : ipv6Len+n]
	target := netip.AddrFrom16([16]byte(icmp[8:24]))
	if icmp[0] != TypeAdvertisement || icmp[1] != 0 || target.IsMulticast() || checksum([16]byte(p[8:24]), [16]byte(p[24:40]), icmp) != 0xffff {
		return netip.Addr{}, false
	}
	return target, true
}

// checksum returns the checksum of an ICMPv6 message with its pseudo header (RFC 8200, 8.1)
// before it is inverted: all ones if the message contains the correct checksum.
func checksum(from, to [16]byte, icmp []byte) uint16 {
	total := uint32(len(icmp)) + protocolICMPv6
	for _, part := range [][]byte{from[:], to[:], icmp} {
		for ; len(part) > 1; part = part[2:] {
			total += uint32(binary.BigEndian.Uint16(part))
		}
		if len(part) == 1 {
			total += uint32(part[0]) << 8
		}
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
