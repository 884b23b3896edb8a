// SPDX-License-Identifier: Apache-2.0

package clusterranges

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Each source counts, unreadable text does not, and no single node can keep tenants from all
// addresses.
func TestCollect(t *testing.T) {
	t.Parallel()
	s := &snapshot{
		extraPodRanges: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")},
		serviceCIDRs:   []networkingv1.ServiceCIDR{{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:96::/112"}}}},
		services:       []corev1.Service{{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.97.0.1"}}}},
		nodes: []corev1.Node{{
			Spec:   corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:244::/64"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "192.0.2.1"}, {Address: "node-1"}}},
		}},
		apiServers: []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.9"}}}}},
		nodeNetworks: []v1.NodeNetwork{{Status: v1.NodeNetworkStatus{NICs: []v1.NIC{
			{Name: "ens4", Addresses: []string{"198.51.100.7/24", "rubbish"}}, {Name: "evil", Addresses: []string{"203.0.113.1/0", "2001:db8::1/0"}},
		}}}},
	}
	got := s.collect()
	for a, want := range map[string]network.RangePurpose{
		"10.200.3.4": network.RangePods, "10.96.7.7": network.RangeServices, "fd00:96::1": network.RangeServices, "10.97.0.1": network.RangeServices,
		"10.97.0.2": "", "10.244.1.9": network.RangePods, "fd00:244::9": network.RangePods, "192.0.2.1": network.RangeNodes, "192.0.2.2": "",
		"192.0.2.9": network.RangeControlPlane, "198.51.100.8": network.RangeNodeSubnets, "203.0.113.1": network.RangeNodes, "203.0.113.2": "", "2001:db8::2": "",
	} {
		in := got.Containing(netip.MustParseAddr(a))
		if len(in) == 0 && want != "" || len(in) > 0 && in[len(in)-1].Purpose != want {
			t.Errorf("%s is in %v, want %q", a, in, want)
		}
	}
	if !got.Equal(s.collect()) {
		t.Error("the same objects make other ranges")
	}
}
