// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// A Pod with CAP_NET_RAW sends in the name of others on its own network: of another Pod, of
// the gateway, of a node, with a MAC that is not its own. Pods on other nodes see none of it,
// and all that it sends in its own name.
func TestHostilePodNamesNoOther(t *testing.T) {
	t.Parallel()
	shared.installFrames(t)
	for i, kind := range []string{v1.TypeIPVLAN, v1.TypeMACVLAN} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c, ns := shared, shared.namespace(t)
			segment := netip.AddrFrom4([4]byte{10, 80, byte(i), 0})
			gateway := hostAddress(segment, 250)
			c.create(t, clusterNetwork("sources-"+kind, "src"+kind, kind, v1.NetworkOptions{
				Device: trunk, VLAN: int32(sourcesVLAN + i), SourceGuard: new(true),
				CIDR: segment.String() + "/24", Net6: "fd00:80:0:" + string('0'+rune(i)) + "::/64",
				Pool:   &v1.IPPool{Start: hostAddress(segment, 10).String(), End: hostAddress(segment, 99).String()},
				Routes: map[string]v1.Gateway{"192.0.2.0/24": v1.Gateway(gateway.String())},
			}))
			asks := `[{"clusterNetwork":"sources-` + kind + `","ip":"dynamic","ip6":"dynamic"}]`
			victim, partner := pod(ns, "victim", c.nodes[0], asks), pod(ns, "partner", c.nodes[1], asks)
			attacker := withNetRaw(pod(ns, "attacker", c.nodes[2], asks))
			c.startPods(t, victim, partner, attacker)
			c.runAttacks(t, victim, partner, c.spoofAttacks(t, attacker, segment, gateway))
			c.ping(t, attacker, victim, "eth0")
		})
	}
}

// sourcesVLAN is the first VLAN of TestHostilePodNamesNoOther.
const sourcesVLAN = 580

// hostAddress is an address of a /24.
func hostAddress(segment netip.Addr, n byte) netip.Addr {
	a := segment.As4()
	a[3] = n
	return netip.AddrFrom4(a)
}

// spoofAttacks are frames in the name of others. The address that one pretends to have, or asks
// for with a MAC that it pretends to have, is the marker.
func (c *cluster) spoofAttacks(t *testing.T, attacker *corev1.Pod, segment, gateway netip.Addr) []attack {
	t.Helper()
	own := c.addresses(t, attacker, "eth0")
	text := c.runInPod(t, attacker, "cat /sys/class/net/eth0/address && echo that was all", "that was all")
	mac, err := net.ParseMAC(strings.Fields(text)[0])
	if err != nil {
		t.Fatal(err)
	}
	v4 := own[slices.IndexFunc(own, netip.Addr.Is4)]
	v6 := own[slices.IndexFunc(own, netip.Addr.Is6)].As16()
	foreign6 := func(n byte) netip.Addr { a := v6; a[8], a[15] = 0xee, n; return netip.AddrFrom16(a) }
	node := netip.MustParseAddr(c.addressOf(t, c.nodes[0], trunk))
	router := netip.MustParseAddr("fe80::bad:1")
	attacks := []attack{
		{reason: "ARP with another's MAC", marker: hostAddress(segment, 200), args: []string{arpRequest(attackerMACBytes, attackerMACBytes, v4, hostAddress(segment, 200))}},
		{reason: "ARP that names another's MAC", marker: hostAddress(segment, 201), args: []string{arpRequest(mac, attackerMACBytes, v4, hostAddress(segment, 201))}},
		{reason: "ARP in the name of another Pod", marker: hostAddress(segment, 202), args: []string{arpRequest(mac, mac, hostAddress(segment, 202), hostAddress(segment, 202))}},
		{reason: "ARP in the name of the gateway", marker: gateway, args: []string{arpRequest(mac, mac, gateway, gateway)}},
		{reason: "ARP in the name of a node", marker: node, args: []string{arpRequest(mac, mac, node, node)}},
		{reason: "IPv4 from another's address", marker: hostAddress(segment, 203), args: []string{udpDatagram(mac, hostAddress(segment, 203))}},
		{reason: "IPv6 from another's address", marker: foreign6(1), args: []string{neighbourAdvertisement(mac, foreign6(1), foreign6(1))}},
		{reason: "a neighbour advertisement for another", marker: foreign6(2), args: []string{neighbourAdvertisement(mac, netip.AddrFrom16(v6), foreign6(2))}},
		{reason: "a message of another router", marker: router, args: []string{neighbourAdvertisement(mac, router, router)}},
	}
	for i := range attacks {
		attacks[i].from, attacks[i].args = attacker, append([]string{"raw", "eth0"}, attacks[i].args...)
	}
	return attacks
}

// arpRequest is a request to the whole segment (RFC 826), in hexadecimal.
func arpRequest(source, names net.HardwareAddr, sender, target netip.Addr) string {
	return hex.EncodeToString(slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, source,
		[]byte{0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1}, names, sender.AsSlice(), make([]byte, 6), target.AsSlice()))
}

// udpDatagram is a UDP datagram to the whole segment (RFC 768, RFC 791), in hexadecimal.
func udpDatagram(source net.HardwareAddr, sender netip.Addr) string {
	frame := datagram(sender, netip.MustParseAddr("255.255.255.255"), []byte("whoever"))
	copy(frame[6:12], source)
	return hex.EncodeToString(frame)
}

// neighbourAdvertisement is a neighbour advertisement to all nodes of the segment (RFC 4861, 4.4), in
// hexadecimal: the target has the MAC.
func neighbourAdvertisement(mac net.HardwareAddr, sender, target netip.Addr) string {
	all := netip.MustParseAddr("ff02::1")
	message := slices.Concat([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice(), []byte{2, 1}, mac)
	// RFC 4443, 2.3: with a pseudo-header of addresses, length and protocol.
	sum := uint32(0)
	checked := slices.Concat(sender.AsSlice(), all.AsSlice(), []byte{0, 0, 0, byte(len(message)), 0, 0, 0, 58}, message)
	for i := 0; i < len(checked); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(checked[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum>>16+sum))
	return hex.EncodeToString(slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1}, mac, []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(message)), 58, 255},
		sender.AsSlice(), all.AsSlice(), message))
}
