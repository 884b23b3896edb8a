// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Source is what the endpoints of a Service are made from. Pods and DanmEps may
// hold more than belongs to the Service.
type Source struct {
	// Service is one that is Served, or Broken (for Keep).
	Service *corev1.Service
	// Request is what Judge read from it.
	Request *network.ServiceRequest
	// Networks are those of Request that exist and serve the Service's namespace.
	Networks map[network.Ref]*network.Network
	Pods     []corev1.Pod
	DanmEps  []v1.DanmEp
	// Ranges are what the cluster itself uses; nil for none.
	Ranges *network.ClusterRanges
	// Shared are the parts of the nodes' subnets that TenantNetworks of the Service's
	// namespace may use, by clusterSubnets of its TenantConfigs.
	Shared []netip.Prefix
	// Foreign reports whether an address is that of another Pod, in the cluster's own
	// network; nil for never.
	Foreign func(pod *corev1.Pod, a netip.Addr) bool
	// Zone returns the zone of a Node, or nothing.
	Zone func(node string) string
}

// Group are endpoints that can stand in one slice: of one family, on the same ports.
type Group struct {
	Family discoveryv1.AddressType
	Ports  []discoveryv1.EndpointPort
	// Endpoints have one address each, and are sorted by it.
	Endpoints []discoveryv1.Endpoint
}

// alive reports whether a Pod has, or may still get, containers that answer.
func alive(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// selected are the living Pods that the Service picks, by their present labels.
func (s *Source) selected() []*corev1.Pod {
	selector := labels.SelectorFromSet(s.Request.Selector)
	var all []*corev1.Pod
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Namespace == s.Service.Namespace && alive(pod) && selector.Matches(labels.Set(pod.Labels)) {
			all = append(all, pod)
		}
	}
	return all
}

// place is a Pod on its node.
type place struct {
	uid  types.UID
	node string
}

func placeOf(pod *corev1.Pod) place { return place{pod.UID, pod.Spec.NodeName} }

// interfaces are the DanmEps of each living Pod, by its UID and node: one that a former Pod of
// the same name left behind is nobody's, and one that another node made is forged. Of two
// for one interface (the sandbox was made anew) the newer counts.
func (s *Source) interfaces() map[place][]*v1.DanmEp {
	type key struct {
		place
		ifc string
	}
	newest := map[key]*v1.DanmEp{}
	for i := range s.DanmEps {
		ep := &s.DanmEps[i]
		k := key{place{types.UID(ep.Spec.PodUID), ep.Spec.Host}, ep.Spec.Interface.Name}
		if ep.Namespace != s.Service.Namespace || k.uid == "" {
			continue
		}
		if other := newest[k]; other == nil || newer(ep, other) {
			newest[k] = ep
		}
	}
	all := map[place][]*v1.DanmEp{}
	for k, ep := range newest {
		all[k.place] = append(all[k.place], ep)
	}
	for _, eps := range all {
		slices.SortFunc(eps, func(a, b *v1.DanmEp) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

// newer orders by age, and by name what is as old.
func newer(a, b *v1.DanmEp) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name > b.Name
}
