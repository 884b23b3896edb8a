// SPDX-License-Identifier: Apache-2.0

package svcwatcher_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// clusterRanges returns those of a small cluster.
func clusterRanges() *network.ClusterRanges {
	use := func(cidr string, use network.RangePurpose) network.ClusterRange {
		return network.ClusterRange{Prefix: netip.MustParsePrefix(cidr), Purpose: use}
	}
	return network.NewClusterRanges([]network.ClusterRange{
		use("10.96.0.0/16", network.RangeServices), use("10.244.0.0/24", network.RangePods), use("fd00:244::/64", network.RangePods),
		use("10.1.0.1/32", network.RangeNodes), use("10.1.0.2/32", network.RangeControlPlane), use("10.1.0.0/24", network.RangeNodeSubnets),
	})
}

// No address of the cluster's own ranges is published, whatever a DanmEp contains, for a Managed
// and for an Invalid Service.
func TestWithheld(t *testing.T) {
	t.Parallel()
	ip := func(a string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: a}} }
	}
	red, tenants := "ClusterNetwork/red: spec.Options.", "TenantNetwork/ns/green: spec.Options."
	green := func(e *v1.DanmEp) {
		e.Spec.NetworkName, e.Spec.NetworkUID, e.Spec.APIType = "green", "green-uid", v1.KindTenantNetwork
	}
	cases := map[string]struct {
		reason  string
		pod     corev1.Pod
		ep      v1.DanmEp
		foreign bool
		shared  string   // by allowedClusterSubnets
		want    []string // or published
	}{
		"Own":         {reason: "The address is in the network's subnet.", pod: pod("a"), ep: ep("a", "10.0.0.1/24", "")},
		"Services":    {reason: "The address is a cluster IP.", pod: pod("a"), ep: ep("a", "10.96.0.1/16", ""), want: []string{red + "cidr: address 10.96.0.1 of Pod a must not be in 10.96.0.0/16, which the cluster uses for Services: use another subnet"}},
		"Pods":        {reason: "The address is another Pod's.", pod: pod("a", ip("10.244.0.9")), ep: ep("a", "10.244.0.8/24", ""), want: []string{red + "cidr: address 10.244.0.8 of Pod a must not be in 10.244.0.0/24, which the cluster uses for Pods: use another subnet"}},
		"PodsV6":      {reason: "The IPv6 address is another Pod's.", pod: pod("a"), ep: ep("a", "", "fd00:244::8/64"), want: []string{red + "net6: address fd00:244::8 of Pod a must not be in fd00:244::/64, which the cluster uses for Pods: use another subnet"}},
		"OwnIP":       {reason: "Kubernetes publishes the Pod's own address too.", pod: pod("a", ip("10.244.0.9")), ep: ep("a", "10.244.0.9/24", "")},
		"Node":        {reason: "The address is one of a node.", pod: pod("a", ip("10.1.0.1")), ep: ep("a", "10.1.0.1/24", ""), want: []string{red + "cidr: address 10.1.0.1 of Pod a must not be in 10.1.0.1/32, which the cluster uses for nodes: use another subnet"}},
		"APIServer":   {reason: "The address is an API server's.", pod: pod("a"), ep: ep("a", "10.1.0.2/24", ""), want: []string{red + "cidr: address 10.1.0.2 of Pod a must not be in 10.1.0.2/32, which the cluster uses for its control plane: use another subnet"}},
		"NodesLAN":    {reason: "An administrator may put Pods into the nodes' subnet.", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "")},
		"TenantLAN":   {reason: "A tenant may not use the nodes' subnet.", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "", green), want: []string{tenants + "cidr: address 10.1.0.99 of Pod a must not be in 10.1.0.0/24, which the cluster uses for the subnets of its nodes: use another subnet"}},
		"SharedLAN":   {reason: "An administrator permits this part of the subnet.", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "", green), shared: "10.1.0.64/26"},
		"OtherPart":   {reason: "The permit is for another part of the subnet.", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "", green), shared: "10.1.0.128/25", want: []string{tenants + "cidr: address 10.1.0.99 of Pod a must not be in 10.1.0.0/24, which the cluster uses for the subnets of its nodes: use another subnet"}},
		"SharedNode":  {reason: "A node's own address is never permitted.", pod: pod("a"), ep: ep("a", "10.1.0.1/24", "", green), shared: "10.1.0.0/24", want: []string{tenants + "cidr: address 10.1.0.1 of Pod a must not be in 10.1.0.1/32, which the cluster uses for nodes: use another subnet"}},
		"SharedPods":  {reason: "The ranges of Pods are never permitted.", pod: pod("a"), ep: ep("a", "10.244.0.8/24", "", green), shared: "10.0.0.0/8", want: []string{tenants + "cidr: address 10.244.0.8 of Pod a must not be in 10.244.0.0/24, which the cluster uses for Pods: use another subnet"}},
		"SharedAPI":   {reason: "An API server's address is never permitted.", pod: pod("a"), ep: ep("a", "10.1.0.2/24", "", green), shared: "10.1.0.0/24", want: []string{tenants + "cidr: address 10.1.0.2 of Pod a must not be in 10.1.0.2/32, which the cluster uses for its control plane: use another subnet"}},
		"Foreign":     {reason: "Another Pod has the address, in an unknown range.", pod: pod("a"), ep: ep("a", "10.0.0.1/24", ""), foreign: true, want: []string{red + "cidr: address 10.0.0.1 of Pod a must not be that of another Pod in the Pod network: use another subnet"}},
		"Outside":     {reason: "The DanmEp is forged.", pod: pod("a"), ep: ep("a", "192.0.2.1/24", ""), want: []string{red + "cidr: address 192.0.2.1 of Pod a must be in the network's subnet: delete the Pod to get another address"}},
		"OtherFamily": {reason: "The network has no subnet of this family.", pod: pod("a"), ep: ep("a", "", "2001:db8::1/64", green), want: []string{tenants + "net6: address 2001:db8::1 of Pod a must be in the network's subnet: delete the Pod to get another address"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := service(func(s *corev1.Service) { s.Annotations["danm.io/tenantNetwork"] = "green" })
			s := source(t, svc, []corev1.Pod{tc.pod}, []v1.DanmEp{tc.ep})
			n := net(network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "green"}, "green-uid")
			n.V6 = nil
			s.Networks[n.Ref] = n
			s.Ranges, s.UsedByOtherPod = clusterRanges(), func(*corev1.Pod, netip.Addr) bool { return tc.foreign }
			if tc.shared != "" {
				s.PermittedSubnets = []netip.Prefix{netip.MustParsePrefix(tc.shared)}
			}
			got := svcwatcher.Desired(s)
			var withheld []string
			for _, w := range got.Withheld {
				withheld = append(withheld, w.String())
			}
			if diff := cmp.Diff(tc.want, withheld); diff != "" {
				t.Errorf("%s: withheld -want +got\n%s", tc.reason, diff)
			}
			if published := len(got.Groups) > 0; published != (len(tc.want) == 0) {
				t.Errorf("%s: published %t: %v", tc.reason, published, got.Groups)
			}
		})
	}
	s := source(t, service(), []corev1.Pod{pod("a")}, []v1.DanmEp{ep("a", "10.96.0.1/8", "")})
	before := svcwatcher.Desired(s).Groups
	version := 0
	there := apply(t, nil, svcwatcher.Plan(s.Service, before, nil), &version)
	s.Ranges = clusterRanges()
	if got := svcwatcher.Retained(s, there); len(got) != 0 || len(there) != 1 || there[0].AddressType != discoveryv1.AddressTypeIPv4 {
		t.Errorf("an address in a range that became known later stays published: %v of %v", got, there)
	}
}

func TestOverlapping(t *testing.T) {
	t.Parallel()
	for cidr, want := range map[string]string{
		"10.96.3.0/24": "10.96.0.0/16", "10.0.0.0/8": "10.1.0.0/24", "10.2.0.0/16": "", "fd00::/16": "fd00:244::/64",
		"10.1.0.2/32": "10.1.0.0/24", "10.244.0.0/23": "10.244.0.0/24", "10.244.1.0/24": "",
	} {
		got, overlaps := clusterRanges().Overlapping(netip.MustParsePrefix(cidr))
		if overlaps != (want != "") || overlaps && got.Prefix.String() != want {
			t.Errorf("%s overlaps %v (%t), want %q", cidr, got, overlaps, want)
		}
	}
}
