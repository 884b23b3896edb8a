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

// clusterRanges are those of a small cluster.
func clusterRanges() *network.ClusterRanges {
	use := func(cidr string, use network.RangePurpose) network.ClusterRange {
		return network.ClusterRange{Prefix: netip.MustParsePrefix(cidr), Purpose: use}
	}
	return network.NewClusterRanges([]network.ClusterRange{
		use("10.96.0.0/16", network.RangeServices), use("10.244.0.0/24", network.RangePods), use("fd00:244::/64", network.RangePods),
		use("10.1.0.1/32", network.RangeNodes), use("10.1.0.2/32", network.RangeControlPlane), use("10.1.0.0/24", network.RangeNodeSubnets),
	})
}

// No address of the cluster's own is published, whatever a DanmEp says, whether the
// Service is served or its annotations cannot be read any longer.
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
		"Own":         {reason: "as ever", pod: pod("a"), ep: ep("a", "10.0.0.1/24", "")},
		"Services":    {reason: "a cluster IP", pod: pod("a"), ep: ep("a", "10.96.0.1/16", ""), want: []string{red + "cidr: address 10.96.0.1 of Pod a is in 10.96.0.0/16, which the cluster uses for Services, and no Service leads there: use another subnet"}},
		"Pods":        {reason: "another Pod's", pod: pod("a", ip("10.244.0.9")), ep: ep("a", "10.244.0.8/24", ""), want: []string{red + "cidr: address 10.244.0.8 of Pod a is in 10.244.0.0/24, which the cluster uses for Pods, and no Service leads there: use another subnet"}},
		"PodsV6":      {reason: "of the other family", pod: pod("a"), ep: ep("a", "", "fd00:244::8/64"), want: []string{red + "net6: address fd00:244::8 of Pod a is in fd00:244::/64, which the cluster uses for Pods, and no Service leads there: use another subnet"}},
		"OwnIP":       {reason: "what Kubernetes publishes, too", pod: pod("a", ip("10.244.0.9")), ep: ep("a", "10.244.0.9/24", "")},
		"Node":        {reason: "a node, by any address of it", pod: pod("a", ip("10.1.0.1")), ep: ep("a", "10.1.0.1/24", ""), want: []string{red + "cidr: address 10.1.0.1 of Pod a is in 10.1.0.1/32, which the cluster uses for nodes, and no Service leads there: use another subnet"}},
		"APIServer":   {reason: "the worst", pod: pod("a"), ep: ep("a", "10.1.0.2/24", ""), want: []string{red + "cidr: address 10.1.0.2 of Pod a is in 10.1.0.2/32, which the cluster uses for its control plane, and no Service leads there: use another subnet"}},
		"NodesLAN":    {reason: "a netadmin may put Pods beside nodes", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "")},
		"TenantLAN":   {reason: "and a tenant may not", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "", green), want: []string{tenants + "cidr: address 10.1.0.99 of Pod a is in 10.1.0.0/24, which the cluster uses for the subnets of its nodes, and no Service leads there: use another subnet"}},
		"SharedLAN":   {reason: "unless a netadmin permits it", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "", green), shared: "10.1.0.64/26"},
		"OtherPart":   {reason: "not in this part", pod: pod("a"), ep: ep("a", "10.1.0.99/24", "", green), shared: "10.1.0.128/25", want: []string{tenants + "cidr: address 10.1.0.99 of Pod a is in 10.1.0.0/24, which the cluster uses for the subnets of its nodes, and no Service leads there: use another subnet"}},
		"SharedNode":  {reason: "a node's own address is no tenant's", pod: pod("a"), ep: ep("a", "10.1.0.1/24", "", green), shared: "10.1.0.0/24", want: []string{tenants + "cidr: address 10.1.0.1 of Pod a is in 10.1.0.1/32, which the cluster uses for nodes, and no Service leads there: use another subnet"}},
		"SharedPods":  {reason: "nor are the other ranges, whatever is permitted", pod: pod("a"), ep: ep("a", "10.244.0.8/24", "", green), shared: "10.0.0.0/8", want: []string{tenants + "cidr: address 10.244.0.8 of Pod a is in 10.244.0.0/24, which the cluster uses for Pods, and no Service leads there: use another subnet"}},
		"SharedAPI":   {reason: "the worst", pod: pod("a"), ep: ep("a", "10.1.0.2/24", "", green), shared: "10.1.0.0/24", want: []string{tenants + "cidr: address 10.1.0.2 of Pod a is in 10.1.0.2/32, which the cluster uses for its control plane, and no Service leads there: use another subnet"}},
		"Foreign":     {reason: "another Pod has it, and no range says so", pod: pod("a"), ep: ep("a", "10.0.0.1/24", ""), foreign: true, want: []string{red + "cidr: address 10.0.0.1 of Pod a is that of another Pod in the cluster's own network, and no Service leads there: use another subnet"}},
		"Outside":     {reason: "a forged DanmEp", pod: pod("a"), ep: ep("a", "192.0.2.1/24", ""), want: []string{red + "cidr: address 192.0.2.1 of Pod a is not in the network's subnet: delete the Pod, and it gets another address"}},
		"OtherFamily": {reason: "the network has no such subnet", pod: pod("a"), ep: ep("a", "", "2001:db8::1/64", green), want: []string{tenants + "net6: address 2001:db8::1 of Pod a is not in the network's subnet: delete the Pod, and it gets another address"}},
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
			var said []string
			for _, w := range got.Withheld {
				said = append(said, w.String())
			}
			if diff := cmp.Diff(tc.want, said); diff != "" {
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
		t.Errorf("what was published before it was known to be the cluster's stays: %v of %v", got, there)
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
