// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// subnetOptions are the options of one address family, by their JSON names.
type subnetOptions struct {
	ip                           ipVersion
	cidrField, poolField, routes string

	cidr     string
	pool     v1.IPPool
	poolCIDR string // IPv6 only
	dsts     map[string]string
}

func optionsV4(o *v1.NetworkOptions) subnetOptions {
	so := subnetOptions{
		ip: ipv4(), cidrField: "cidr", poolField: "allocation_pool", routes: "routes",
		cidr: o.CIDR, dsts: toStrings(o.Routes),
	}
	if o.Pool != nil {
		so.pool = *o.Pool
	}
	return so
}

func optionsV6(o *v1.NetworkOptions) subnetOptions {
	so := subnetOptions{
		ip: ipv6(), cidrField: "net6", poolField: "allocation_pool_v6", routes: "routes6",
		cidr: o.Net6, dsts: toStrings(o.Routes6),
	}
	if o.Pool6 != nil {
		so.pool, so.poolCIDR = o.Pool6.IPPool, o.Pool6.CIDR
	}
	return so
}

// toStrings drops the type of the gateways.
func toStrings[G ~string](routes map[string]G) map[string]string {
	m := make(map[string]string, len(routes))
	for dst, gw := range routes {
		m[dst] = string(gw)
	}
	return m
}

// readSubnet returns nil if the network has no subnet of this family, or if readSubnet adds a fault.
func readSubnet(f *faults, path *field.Path, o subnetOptions) *Subnet {
	before := len(f.list)
	s := &Subnet{CIDR: readCIDR(f, path, o)}
	s.Start, s.End = readPool(f, path.Child(o.poolField), o, s.CIDR)
	s.Routes = readRoutes(f, path.Child(o.routes), o, s.CIDR)
	if o.cidr == "" || len(f.list) > before {
		return nil
	}
	return s
}

// readCIDR returns the masked subnet, or the zero Prefix.
func readCIDR(f *faults, path *field.Path, o subnetOptions) netip.Prefix {
	if o.cidr == "" {
		return netip.Prefix{}
	}
	p, ok := o.ip.parsePrefix(o.cidr)
	if !ok {
		f.invalid(path.Child(o.cidrField), o.cidr, "must be "+o.ip.prefixRule)
	} else if overlapsSpecial(p) {
		f.invalid(path.Child(o.cidrField), o.cidr, "must be outside "+o.ip.specialRule+", which are for special purposes")
	}
	return p
}

// overlapsSpecial reports whether p overlaps a prefix of addresses for special purposes, which no
// subnet may overlap.
func overlapsSpecial(p netip.Prefix) bool {
	return slices.ContainsFunc([]netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),          // unspecified
		netip.MustParsePrefix("127.0.0.0/8"),        // loopback
		netip.MustParsePrefix("169.254.0.0/16"),     // link-local
		netip.MustParsePrefix("224.0.0.0/4"),        // multicast
		netip.MustParsePrefix("255.255.255.255/32"), // limited broadcast

		netip.MustParsePrefix("::/80"),     // unspecified, loopback, IPv4-mapped
		netip.MustParsePrefix("fe80::/10"), // link-local
		netip.MustParsePrefix("ff00::/8"),  // multicast
	}, p.Overlaps)
}

// readPool returns the first and the last dynamic address. The subnet is the zero Prefix if it is
// missing or invalid.
func readPool(f *faults, path *field.Path, o subnetOptions, subnet netip.Prefix) (start, end netip.Addr) {
	if o.cidr == "" && (o.pool.Start != "" || o.pool.End != "" || o.poolCIDR != "") {
		f.forbidden(path, "must come with "+o.cidrField+", because a pool is a part of the subnet: set "+o.cidrField+", or leave the pool out")
	}
	part := readPoolCIDR(f, path.Child("cidr"), o, subnet)
	read := func(name, value string) netip.Addr {
		return readPoolAddr(f, path.Child(name), o, value, subnet, part)
	}
	start, end = read("start", o.pool.Start), read("end", o.pool.End)
	if start.IsValid() && end.IsValid() && end.Less(start) {
		f.invalid(path.Child("end"), o.pool.End,
			fmt.Sprintf("must not be before start %s: use start or a later address", o.pool.Start))
	}
	return defaultPool(o.ip, subnet, part, start, end)
}

// readPoolCIDR returns the part of net6 with the dynamic addresses, or the zero Prefix.
func readPoolCIDR(f *faults, path *field.Path, o subnetOptions, subnet netip.Prefix) netip.Prefix {
	if o.poolCIDR == "" {
		return netip.Prefix{}
	}
	part, ok := o.ip.parsePrefix(o.poolCIDR)
	if !ok {
		f.invalid(path, o.poolCIDR, "must be "+o.ip.prefixRule)
		return netip.Prefix{}
	}
	if subnet.IsValid() && (!subnet.Contains(part.Addr()) || part.Bits() < subnet.Bits()) {
		f.invalid(path, o.poolCIDR, fmt.Sprintf("must be a part of %s %s: use a subnet of it", o.cidrField, o.cidr))
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
		f.invalid(path, value, "must be "+o.ip.addrRule)
		return netip.Addr{}
	}
	if subnet.IsValid() && !subnet.Contains(a) {
		f.invalid(path, value, fmt.Sprintf("must be in %s %s: use an address of the subnet", o.cidrField, o.cidr))
	}
	if part.IsValid() && !part.Contains(a) {
		f.invalid(path, value, fmt.Sprintf("must be in the pool's cidr %s: use an address of it", o.poolCIDR))
	}
	return a
}

// defaultPool returns the pool with defaults for the ends that are not set: for IPv4 the subnet
// without its network and broadcast address, for IPv6 the whole pool subnet. If the end that is set
// is beyond the default of the other one, the pool has one address.
func defaultPool(ip ipVersion, subnet, part netip.Prefix, start, end netip.Addr) (netip.Addr, netip.Addr) {
	if !subnet.IsValid() {
		return netip.Addr{}, netip.Addr{}
	}
	if !part.IsValid() {
		part = subnet
	}
	lo, hi := firstAddr(part), lastAddr(part)
	if ip.bits == ipv4().bits && hasBroadcast(part) {
		lo, hi = lo.Next(), hi.Prev()
	}
	switch {
	case start.IsValid() && end.IsValid():
		return start, end
	case start.IsValid():
		return start, laterAddr(start, hi)
	case end.IsValid():
		return earlierAddr(lo, end), end
	}
	return lo, hi
}

// GrowthAdvice returns the change of spec.Options that gives the pool more addresses: a wider range in
// the subnet or, if it has all of the subnet, a wider subnet. Admission permits both while Pods are
// attached, unless an object forbids it that the advice names. The network is that of the subnet.
func (s *Subnet) GrowthAdvice(n *Network) string {
	ip, cidrField, poolField := ipv4(), "cidr", "allocation_pool"
	if s.CIDR.Addr().Is6() {
		ip, cidrField, poolField = ipv6(), "net6", "allocation_pool_v6"
	}
	first, last := defaultPool(ip, s.CIDR, s.CIDR, netip.Addr{}, netip.Addr{})
	if s.hasUsable(first, s.Start.Prev()) || s.hasUsable(s.End.Next(), last) {
		return fmt.Sprintf("widen spec.Options.%s within %s %s%s", poolField, cidrField, s.CIDR, growthLimits(n, false))
	}
	if overlapsSpecial(netip.PrefixFrom(s.CIDR.Addr(), s.CIDR.Bits()-1).Masked()) {
		return fmt.Sprintf("use a second network, because a subnet wider than %s %s has addresses for special purposes", cidrField, s.CIDR)
	}
	return fmt.Sprintf("widen spec.Options.%s to a subnet that contains %s, and %s with it if it is set%s", cidrField, s.CIDR, poolField, growthLimits(n, true))
}

// growthLimits returns a clause that names the objects which may forbid more addresses, or "".
func growthLimits(n *Network, widerSubnet bool) string {
	var limits []string
	if widerSubnet && n.Ref.Kind == v1.KindTenantNetwork {
		limits = append(limits, "your TenantConfig")
	}
	if _, shared := segmentOf(n); shared {
		limits = append(limits, "the other networks of the segment")
	}
	if len(limits) == 0 {
		return ""
	}
	return " (" + strings.Join(limits, " and ") + " must allow it)"
}

// hasUsable reports whether dynamic claims could get an address between from and to, inclusive. It ends
// soon, because the addresses that they cannot get are few.
func (s *Subnet) hasUsable(from, to netip.Addr) bool {
	for a := from; a.IsValid() && !to.Less(a); a = a.Next() {
		if !s.isEnd(a) && !s.isGateway(a) {
			return true
		}
	}
	return false
}

// isEnd reports whether an address is the network or the broadcast address.
func (s *Subnet) isEnd(a netip.Addr) bool {
	return hasBroadcast(s.CIDR) && (a == firstAddr(s.CIDR) || a == lastAddr(s.CIDR))
}

func laterAddr(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlierAddr(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}

// readRoutes checks a network's routes and returns them ordered by destination.
func readRoutes(f *faults, path *field.Path, o subnetOptions, subnet netip.Prefix) []Route {
	if len(o.dsts) == 0 {
		return nil
	}
	if o.cidr == "" {
		f.forbidden(path, "must come with "+o.cidrField+", because a gateway is an address of the subnet: set "+o.cidrField+", or leave "+o.routes+" out")
	}
	return parseRoutes(f, path, o.ip, o.dsts, func(path *field.Path, gateway netip.Addr) {
		if subnet.IsValid() && !subnet.Contains(gateway) {
			f.invalid(path, gateway.String(), fmt.Sprintf("must be in %s %s: use a gateway in the subnet", o.cidrField, o.cidr))
		}
	})
}

// maxRoutes bounds the cost of the CEL rules.
const maxRoutes = 64

// parseRoutes returns the routes of a map from destination to gateway, ordered by destination and
// without invalid ones. checkGateway may be nil; it adds the faults of a gateway, with the path of its
// route.
func parseRoutes(f *faults, path *field.Path, ip ipVersion, dsts map[string]string, checkGateway func(*field.Path, netip.Addr)) []Route {
	if len(dsts) > maxRoutes {
		f.list = append(f.list, field.TooMany(path, len(dsts), maxRoutes))
		return nil
	}
	var routes []Route
	written := map[netip.Prefix]string{}
	for _, key := range sortedKeys(dsts) {
		dst, okDst := ip.parsePrefix(key)
		if !okDst {
			f.invalid(path.Key(key), key, "must have a destination (its key) that is "+ip.prefixRule)
		}
		gw, okGw := ip.parseAddr(dsts[key])
		if !okGw {
			f.invalid(path.Key(key), dsts[key], "must be "+ip.addrRule)
		} else if checkGateway != nil {
			checkGateway(path.Key(key), gw)
		}
		if other, taken := written[dst]; okDst && taken {
			f.invalid(path.Key(key), key, fmt.Sprintf("must not have the same destination as %s: name each subnet once", other))
			continue
		}
		if okDst {
			written[dst] = key
		}
		if okDst && okGw {
			routes = append(routes, Route{Dst: dst, Gateway: gw})
		}
	}
	slices.SortFunc(routes, func(a, b Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()))
	})
	return routes
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// maxRanges bounds the cost of the CEL rules.
const maxRanges = 256

// readStaticPool restricts the static addresses of both subnets to the ranges of static_pool. A family
// without a range in the list then has no static addresses.
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
			f.invalid(path.Index(i), r.String(), fmt.Sprintf("must be in cidr or net6: use addresses of %s %q", so.cidrField, so.cidr))
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

// readRange checks that both ends are of one family and in order.
func readRange(f *faults, path *field.Path, written v1.IPRange) (AddrRange, bool) {
	start, ok := parseAnyAddr(written.Start)
	if !ok {
		f.invalid(path.Child("start"), written.Start, `must be an IPv4 or IPv6 address, such as "10.0.0.10"`)
		return AddrRange{}, false
	}
	if written.End == "" {
		return AddrRange{start, start}, true
	}
	end, ok := parseAnyAddr(written.End)
	switch {
	case !ok || end.BitLen() != start.BitLen():
		f.invalid(path.Child("end"), written.End, `must be an address of the same family as start, such as "10.0.0.20"`)
	case end.Less(start):
		f.invalid(path.Child("end"), written.End, fmt.Sprintf("must not be before start %s: use start or a later address", written.Start))
	default:
		return AddrRange{start, end}, true
	}
	return AddrRange{}, false
}

func parseAnyAddr(s string) (netip.Addr, bool) {
	if a, ok := ipv4().parseAddr(s); ok {
		return a, true
	}
	return ipv6().parseAddr(s)
}
