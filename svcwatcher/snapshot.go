// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	endpointutil "k8s.io/endpointslice/util"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Snapshot is what the endpoints of a Service are made from. Pods and DanmEps may
// hold more than belongs to the Service.
type Snapshot struct {
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
	// PermittedSubnets are the parts of the nodes' subnets that TenantNetworks of the Service's
	// namespace may use, by allowedClusterSubnets of its TenantConfigs.
	PermittedSubnets []netip.Prefix
	// UsedByOtherPod reports whether an address is that of another Pod, in the cluster's own
	// network; nil for never.
	UsedByOtherPod func(pod *corev1.Pod, a netip.Addr) bool
	// Zone returns the zone of a Node, or nothing.
	Zone func(node string) string
}

// selectedPods are the living Pods that the Service picks, by their present labels.
func (s *Snapshot) selectedPods() []*corev1.Pod {
	selector := labels.SelectorFromSet(s.Request.Selector)
	var all []*corev1.Pod
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Namespace == s.Service.Namespace && notTerminated(pod) && selector.Matches(labels.Set(pod.Labels)) {
			all = append(all, pod)
		}
	}
	return all
}

// notTerminated reports whether a Pod has, or may still get, containers that answer.
func notTerminated(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// danmEpsByPod are the DanmEps of each living Pod, by its UID and node: one that a former Pod of
// the same name left behind is nobody's, and one that another node made is forged. Of two
// for one interface (the sandbox was made anew) the newer counts.
func (s *Snapshot) danmEpsByPod() map[podKey][]*v1.DanmEp {
	type key struct {
		podKey
		ifc string
	}
	newest := map[key]*v1.DanmEp{}
	for i := range s.DanmEps {
		ep := &s.DanmEps[i]
		k := key{podKey{types.UID(ep.Spec.PodUID), ep.Spec.Host}, ep.Spec.Interface.Name}
		if ep.Namespace != s.Service.Namespace || k.uid == "" {
			continue
		}
		if other := newest[k]; other == nil || newerThan(ep, other) {
			newest[k] = ep
		}
	}
	all := map[podKey][]*v1.DanmEp{}
	for k, ep := range newest {
		all[k.podKey] = append(all[k.podKey], ep)
	}
	for _, eps := range all {
		slices.SortFunc(eps, func(a, b *v1.DanmEp) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

// podKey is a Pod on its node.
type podKey struct {
	uid  types.UID
	node string
}

func podKeyOf(pod *corev1.Pod) podKey { return podKey{pod.UID, pod.Spec.NodeName} }

// newerThan orders by age, and by name what is as old.
func newerThan(a, b *v1.DanmEp) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name > b.Name
}

// requestedNetwork returns the network of the Service that a DanmEp is on; nil for another one,
// and for one that was made on a former network of that name.
func (s *Snapshot) requestedNetwork(ep *v1.DanmEp) *network.Network {
	ref := network.Ref{Kind: cmp.Or(ep.Spec.APIType, v1.KindDanmNet), Name: ep.Spec.NetworkName}
	if ref.Kind != v1.KindClusterNetwork {
		ref.Namespace = ep.Namespace
	}
	n := s.Networks[ref]
	if n == nil || !slices.Contains(s.Request.Networks, ref) || ep.Spec.NetworkUID != "" && ep.Spec.NetworkUID != n.UID {
		return nil
	}
	return n
}

// hasFamily reports whether the Service has the family of an address; one without
// families was stored before there were any, and has both.
func (s *Snapshot) hasFamily(a netip.Addr) bool {
	family := corev1.IPv6Protocol
	if a.Is4() {
		family = corev1.IPv4Protocol
	}
	return len(s.Service.Spec.IPFamilies) == 0 || slices.Contains(s.Service.Spec.IPFamilies, family)
}

// withholdReason says why an address that a Pod has on a network is not published; empty for one
// that is. A DanmEp is what one node says, and a network may be older than the rules of
// admission.
func (s *Snapshot) withholdReason(n *network.Network, pod *corev1.Pod, a netip.Addr) string {
	if subnet := subnetOf(n, a); !n.Delegates() && (subnet == nil || !subnet.CIDR.Contains(a)) {
		return "is not in the network's subnet: delete the Pod, and it gets another address"
	}
	return s.clusterRangeReason(n.Ref.Kind, pod, a)
}

func subnetOf(n *network.Network, a netip.Addr) *network.Subnet {
	if a.Is4() {
		return n.V4
	}
	return n.V6
}

// clusterRangeReason says why an address is not published on a network of any subnet. A Pod's
// own address in the range of Pods is what Kubernetes publishes, too: a network that
// delegates the first interface has such addresses.
func (s *Snapshot) clusterRangeReason(kind string, pod *corev1.Pod, a netip.Addr) string {
	if s.Ranges != nil {
		for _, r := range s.Ranges.Containing(a) {
			switch {
			case r.Purpose == network.RangeNodeSubnets && (kind != v1.KindTenantNetwork || s.permitsNodeSubnet(a)):
			case r.Purpose == network.RangePods && hasPodIP(pod, a):
			default:
				return fmt.Sprintf("is in %s, and no Service leads there: use another subnet", r)
			}
		}
	}
	if s.UsedByOtherPod != nil && s.UsedByOtherPod(pod, a) {
		return "is that of another Pod in the cluster's own network, and no Service leads there: use another subnet"
	}
	return ""
}

func hasPodIP(pod *corev1.Pod, a netip.Addr) bool {
	return slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == a.String() })
}

// permitsNodeSubnet reports whether a netadmin lets tenants of the namespace have an address in the
// nodes' subnets. The addresses of the nodes themselves, and the ranges for Pods and
// Services, are never shared: what answers there is not the tenant's.
func (s *Snapshot) permitsNodeSubnet(a netip.Addr) bool {
	return slices.ContainsFunc(s.PermittedSubnets, func(p netip.Prefix) bool { return p.Contains(a) })
}

// NeedsPermittedSubnets reports whether Shared decides about any address.
func (s *Snapshot) NeedsPermittedSubnets() bool {
	return s.Ranges != nil && slices.ContainsFunc(s.DanmEps, func(ep v1.DanmEp) bool {
		return ep.Spec.APIType == v1.KindTenantNetwork && slices.ContainsFunc(publishableAddresses(&ep), func(a netip.Addr) bool {
			return slices.ContainsFunc(s.Ranges.Containing(a), func(r network.ClusterRange) bool { return r.Purpose == network.RangeNodeSubnets })
		})
	})
}

// publishableAddresses are those of an interface that an EndpointSlice may have: the API server
// refuses a slice as a whole for one address that means something else on each link.
func publishableAddresses(ep *v1.DanmEp) []netip.Addr {
	var all []netip.Addr
	for _, text := range []string{ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6} {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue // most have one family only
		}
		a := prefix.Addr().Unmap()
		if a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
			continue
		}
		all = append(all, a)
	}
	return all
}

// newEndpoint is a candidate as it stands in a slice.
func (s *Snapshot) newEndpoint(c candidate) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{c.address.String()},
		Conditions: endpointConditions(s.Service, c.pod),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: c.pod.Namespace, Name: c.pod.Name, UID: c.pod.UID},
	}
	if endpointutil.ShouldSetHostname(c.pod, s.Service) {
		hostname := c.pod.Spec.Hostname
		e.Hostname = &hostname
	}
	if node := c.pod.Spec.NodeName; node != "" {
		e.NodeName = &node
		if zone := s.Zone(node); zone != "" {
			e.Zone = &zone
		}
	}
	return e
}

// endpointConditions are a Pod's as KEP-1672 has them: serving is the Pod's readiness,
// terminating its end; ready is both, unless the Service publishes every Pod.
func endpointConditions(svc *corev1.Service, pod *corev1.Pod) discoveryv1.EndpointConditions {
	serving, terminating := endpointutil.IsPodReady(pod), pod.DeletionTimestamp != nil
	ready := svc.Spec.PublishNotReadyAddresses || serving && !terminating
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}
