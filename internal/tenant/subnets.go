// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// CheckSubnets checks that the subnets of a TenantNetwork are in the subnets of the namespace's
// TenantConfigs, and that they do not overlap ranges that the cluster uses itself, unless a TenantConfig
// permits it. Before is the network before a change, and nil for a new one: an unchanged subnet is not
// checked again. The error is a *network.InvalidError with both families.
func CheckSubnets(n, before *network.Network, namespaceLabels map[string]string, configs []Config, used *network.ClusterRanges) error {
	var allowed, shared []netip.Prefix
	for _, c := range configsFor(configs, namespaceLabels) {
		allowed, shared = append(allowed, c.Subnets...), append(shared, c.ClusterSubnets...)
	}
	var was network.Network
	if before != nil {
		was = *before
	}
	var faults field.ErrorList
	for _, f := range []struct {
		field   string
		is, was *network.Subnet
	}{{"cidr", n.V4, was.V4}, {"net6", n.V6, was.V6}} {
		if f.is == nil || f.was != nil && f.was.CIDR == f.is.CIDR {
			continue
		}
		if rule := subnetRule(f.is.CIDR, allowed, shared, used); rule != "" {
			faults = append(faults, field.Invalid(optionPath(f.field), f.is.CIDR.String(), rule))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &network.InvalidError{Faults: faults}
}

// subnetRule returns the rule that a subnet violates, or "".
func subnetRule(subnet netip.Prefix, allowed, shared []netip.Prefix, used *network.ClusterRanges) string {
	in := func(outer netip.Prefix) bool {
		return outer.Bits() <= subnet.Bits() && outer.Contains(subnet.Addr())
	}
	if len(allowed) > 0 && !slices.ContainsFunc(allowed, in) {
		texts := make([]string, len(allowed))
		for i, p := range allowed {
			texts[i] = p.String()
		}
		return fmt.Sprintf("must be in the subnets that networks of this namespace may have: use a part of %s", strings.Join(texts, ", "))
	}
	if used == nil || slices.ContainsFunc(shared, in) {
		return ""
	}
	if r, overlaps := used.Overlapping(subnet); overlaps {
		return fmt.Sprintf("must not overlap %s: use another subnet, or ask a netadmin to permit it in allowedClusterSubnets", r)
	}
	return ""
}
