// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// maxRanges bounds the cost of the CEL rules.
const maxRanges = 256

// readStaticPool restricts the static addresses of both subnets to the ranges of a
// list. A family without a range then has none: a list means what it has.
func readStaticPool(f *faults, path *field.Path, o *v1.NetworkOptions, n *Network) {
	if o.StaticPool == nil {
		return
	}
	if len(o.StaticPool) > maxRanges {
		f.list = append(f.list, field.TooMany(path, len(o.StaticPool), maxRanges))
		return
	}
	static4, static6 := []AddrRange{}, []AddrRange{}
	for i, written := range o.StaticPool {
		r, ok := readRange(f, path.Index(i), written)
		if !ok {
			continue
		}
		so, static := optionsV4(o), &static4
		if r.Start.Is6() {
			so, static = optionsV6(o), &static6
		}
		subnet, ok := so.ip.parsePrefix(so.cidr)
		if !ok || !subnet.Contains(r.Start) || !subnet.Contains(r.End) {
			f.invalid(path.Index(i), r.String(), fmt.Sprintf("a range is outside cidr and net6: use addresses of %s %q", so.cidrField, so.cidr))
		}
		*static = append(*static, r)
	}
	if n.V4 != nil {
		n.V4.Static = static4
	}
	if n.V6 != nil {
		n.V6.Static = static6
	}
}

// readRange returns a range of one family in the right order.
func readRange(f *faults, path *field.Path, written v1.IPRange) (AddrRange, bool) {
	start, ok := parseAnyAddr(written.Start)
	if !ok {
		f.invalid(path.Child("start"), written.Start, `is an IPv4 or IPv6 address, such as "10.0.0.10"`)
		return AddrRange{}, false
	}
	if written.End == "" {
		return AddrRange{start, start}, true
	}
	end, ok := parseAnyAddr(written.End)
	switch {
	case !ok || end.BitLen() != start.BitLen():
		f.invalid(path.Child("end"), written.End, `is an address of the same family as start, such as "10.0.0.20"`)
	case end.Less(start):
		f.invalid(path.Child("end"), written.End, fmt.Sprintf("is before start %s: use an address from start on", written.Start))
	default:
		return AddrRange{start, end}, true
	}
	return AddrRange{}, false
}

func parseAnyAddr(s string) (netip.Addr, bool) {
	if a, ok := ipv4.parseAddr(s); ok {
		return a, true
	}
	return ipv6.parseAddr(s)
}

// String returns start-end, or the one address.
func (r AddrRange) String() string {
	if r.Start == r.End {
		return r.Start.String()
	}
	return r.Start.String() + "-" + r.End.String()
}
