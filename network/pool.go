// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// readPool returns the first and the last dynamic address. Subnet is the zero
// Prefix when it is missing or wrong.
func readPool(f *faults, path *field.Path, o subnetOptions, subnet netip.Prefix) (start, end netip.Addr) {
	if o.cidr == "" && (o.pool.Start != "" || o.pool.End != "" || o.poolCIDR != "") {
		f.forbidden(path, "a pool is a part of the subnet: set "+o.cidrField+", or leave the pool out")
	}
	part := readPoolCIDR(f, path.Child("cidr"), o, subnet)
	read := func(name, value string) netip.Addr {
		return readPoolAddr(f, path.Child(name), o, value, subnet, part)
	}
	start, end = read("start", o.pool.Start), read("end", o.pool.End)
	if o.pool.LastIP != "" {
		if _, ok := o.ip.parseAddr(o.pool.LastIP); !ok {
			f.invalid(path.Child("lastIp"), o.pool.LastIP, "is "+o.ip.addrRule)
		}
	}
	if start.IsValid() && end.IsValid() && end.Less(start) {
		f.invalid(path.Child("end"), o.pool.End,
			fmt.Sprintf("is before start %s: use an address from start on", o.pool.Start))
	}
	return defaultPool(o.ip, subnet, part, start, end)
}

// readPoolCIDR returns the part of net6 that dynamic addresses come from, or the
// zero Prefix.
func readPoolCIDR(f *faults, path *field.Path, o subnetOptions, subnet netip.Prefix) netip.Prefix {
	if o.poolCIDR == "" {
		return netip.Prefix{}
	}
	part, ok := o.ip.parsePrefix(o.poolCIDR)
	if !ok {
		f.invalid(path, o.poolCIDR, "is "+o.ip.prefixRule)
		return netip.Prefix{}
	}
	if subnet.IsValid() && (!subnet.Contains(part.Addr()) || part.Bits() < subnet.Bits()) {
		f.invalid(path, o.poolCIDR, fmt.Sprintf("is not a part of %s %s: use a subnet of it", o.cidrField, o.cidr))
	}
	return part
}

// readPoolAddr returns one end of the range, or the zero Addr.
func readPoolAddr(f *faults, path *field.Path, o subnetOptions, value string, subnet, part netip.Prefix) netip.Addr {
	if value == "" {
		return netip.Addr{}
	}
	a, ok := o.ip.parseAddr(value)
	if !ok {
		f.invalid(path, value, "is "+o.ip.addrRule)
		return netip.Addr{}
	}
	if subnet.IsValid() && !subnet.Contains(a) {
		f.invalid(path, value, fmt.Sprintf("is outside %s %s: use an address of the subnet", o.cidrField, o.cidr))
	}
	if part.IsValid() && !part.Contains(a) {
		f.invalid(path, value, fmt.Sprintf("is outside the pool's cidr %s: use an address of it", o.poolCIDR))
	}
	return a
}

// defaultPool fills in the ends that are not given: for IPv4 the subnet without
// its network and broadcast address, for IPv6 the whole pool subnet. An end that
// is given beyond the other's default makes a pool of one address.
func defaultPool(ip ipVersion, subnet, part netip.Prefix, start, end netip.Addr) (netip.Addr, netip.Addr) {
	if !subnet.IsValid() {
		return netip.Addr{}, netip.Addr{}
	}
	if !part.IsValid() {
		part = subnet
	}
	lo, hi := first(part), last(part)
	if ip.bits == ipv4.bits && hasBroadcast(part) {
		lo, hi = lo.Next(), hi.Prev()
	}
	switch {
	case start.IsValid() && end.IsValid():
		return start, end
	case start.IsValid():
		return start, later(start, hi)
	case end.IsValid():
		return earlier(lo, end), end
	}
	return lo, hi
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlier(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}
