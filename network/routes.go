// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxRoutes bounds the cost of the CEL rules.
const maxRoutes = 64

// readRoutes checks a network's routes, in an order that does not change.
func readRoutes(f *faults, path *field.Path, o subnetOptions, subnet netip.Prefix) []Route {
	if len(o.dsts) == 0 {
		return nil
	}
	if o.cidr == "" {
		f.forbidden(path, "a gateway is an address of the subnet: set "+o.cidrField+", or leave "+o.routes+" out")
	}
	routes := parseRoutes(f, path, o.ip, o.dsts)
	for _, r := range routes {
		if subnet.IsValid() && !subnet.Contains(r.Gateway) {
			f.invalid(path, r.Gateway.String(), fmt.Sprintf("gateway of %s is outside %s %s: use an address of the subnet", r.Dst, o.cidrField, o.cidr))
		}
	}
	return routes
}

// parseRoutes returns the routes of a map from destination to gateway, ordered
// by destination; those that are wrong are left out.
func parseRoutes(f *faults, path *field.Path, ip ipVersion, dsts map[string]string) []Route {
	if len(dsts) > maxRoutes {
		f.list = append(f.list, field.TooMany(path, len(dsts), maxRoutes))
		return nil
	}
	var routes []Route
	written := map[netip.Prefix]string{}
	for _, key := range sortedKeys(dsts) {
		dst, okDst := ip.parsePrefix(key)
		if !okDst {
			f.invalid(path, key, "a destination (the key) is "+ip.prefixRule)
		}
		gw, okGw := ip.parseAddr(dsts[key])
		if !okGw {
			f.invalid(path.Key(key), dsts[key], "a gateway is "+ip.addrRule)
		}
		if other, taken := written[dst]; okDst && taken {
			f.invalid(path, key, fmt.Sprintf("is the same subnet as %s: name each destination once", other))
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
