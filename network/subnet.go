// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
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
		ip: ipv4, cidrField: "cidr", poolField: "allocation_pool", routes: "routes",
		cidr: o.CIDR, dsts: plain(o.Routes),
	}
	if o.Pool != nil {
		so.pool = *o.Pool
	}
	return so
}

func optionsV6(o *v1.NetworkOptions) subnetOptions {
	so := subnetOptions{
		ip: ipv6, cidrField: "net6", poolField: "allocation_pool_v6", routes: "routes6",
		cidr: o.Net6, dsts: plain(o.Routes6),
	}
	if o.Pool6 != nil {
		so.pool, so.poolCIDR = o.Pool6.IPPool, o.Pool6.CIDR
	}
	return so
}

// plain drops the type of the gateways.
func plain[G ~string](routes map[string]G) map[string]string {
	m := make(map[string]string, len(routes))
	for dst, gw := range routes {
		m[dst] = string(gw)
	}
	return m
}

// readSubnet returns nil when the network has no subnet of this family, and
// whenever it adds a fault.
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
		f.invalid(path.Child(o.cidrField), o.cidr, "is "+o.ip.prefixRule)
	} else if slices.ContainsFunc(o.ip.special, p.Overlaps) {
		f.invalid(path.Child(o.cidrField), o.cidr, "must be outside "+o.ip.specialRule+", which are for special purposes")
	}
	return p
}
