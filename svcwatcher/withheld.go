// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Withheld is an address of a Pod that is not published.
type Withheld struct {
	// Network that the Pod has it on.
	Network network.Ref
	// Pod is the name.
	Pod string
	// Address of the Pod.
	Address netip.Addr
	// Rule says why, and what to do.
	Rule string
}

// String names the network, the field of its subnet, the address and the rule.
func (w Withheld) String() string {
	field := "cidr"
	if w.Address.Is6() {
		field = "net6"
	}
	return fmt.Sprintf("%s: spec.Options.%s: address %s of Pod %s %s", w.Network, field, w.Address, w.Pod, w.Rule)
}

// rule says why an address that a Pod has on a network is not published; empty for one
// that is. A DanmEp is what one node says, and a network may be older than the rules of
// admission.
func (s *Source) rule(n *network.Network, pod *corev1.Pod, a netip.Addr) string {
	if subnet := subnetOf(n, a); !n.Delegates() && (subnet == nil || !subnet.CIDR.Contains(a)) {
		return "is not in the network's subnet: delete the Pod, and it gets another address"
	}
	return s.clusterRule(n.Ref.Kind, pod, a)
}

func subnetOf(n *network.Network, a netip.Addr) *network.Subnet {
	if a.Is4() {
		return n.V4
	}
	return n.V6
}

// clusterRule says why an address is not published on a network of any subnet. A Pod's
// own address in the range of Pods is what Kubernetes publishes, too: a network that
// delegates the first interface has such addresses.
func (s *Source) clusterRule(kind string, pod *corev1.Pod, a netip.Addr) string {
	if s.Ranges != nil {
		for _, r := range s.Ranges.Containing(a) {
			switch {
			case r.Use == network.RangeNodeSubnets && (kind != v1.KindTenantNetwork || s.shares(a)):
			case r.Use == network.RangePods && hasIP(pod, a):
			default:
				return fmt.Sprintf("is in %s, and no Service leads there: use another subnet", r)
			}
		}
	}
	if s.Foreign != nil && s.Foreign(pod, a) {
		return "is that of another Pod in the cluster's own network, and no Service leads there: use another subnet"
	}
	return ""
}

// shares reports whether a netadmin lets tenants of the namespace have an address in the
// nodes' subnets. The addresses of the nodes themselves, and the ranges for Pods and
// Services, are never shared: what answers there is not the tenant's.
func (s *Source) shares(a netip.Addr) bool {
	return slices.ContainsFunc(s.Shared, func(p netip.Prefix) bool { return p.Contains(a) })
}

// NeedsShared reports whether Shared decides about any address.
func (s *Source) NeedsShared() bool {
	return s.Ranges != nil && slices.ContainsFunc(s.DanmEps, func(ep v1.DanmEp) bool {
		return ep.Spec.APIType == v1.KindTenantNetwork && slices.ContainsFunc(addresses(&ep), func(a netip.Addr) bool {
			return slices.ContainsFunc(s.Ranges.Containing(a), func(r network.ClusterRange) bool { return r.Use == network.RangeNodeSubnets })
		})
	})
}

func hasIP(pod *corev1.Pod, a netip.Addr) bool {
	return slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == a.String() })
}
