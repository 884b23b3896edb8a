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

// Snapshot is the input of a Service's endpoints. Pods and DanmEps may contain more than belong to
// the Service.
type Snapshot struct {
	// Service is Managed, or Invalid (for Retained).
	Service *corev1.Service
	// Request is what Classify parsed.
	Request *network.ServiceRequest
	// Networks are those of Request that exist and allow the Service's namespace.
	Networks map[network.Ref]*network.Network
	Pods     []corev1.Pod
	DanmEps  []v1.DanmEp
	// Ranges are the addresses that the cluster itself uses; nil for none.
	Ranges *network.ClusterRanges
	// PermittedSubnets are the parts of the nodes' subnets that TenantNetworks of the Service's
	// namespace may use, from allowedClusterSubnets of TenantConfigs.
	PermittedSubnets []netip.Prefix
	// UsedByOtherPod reports whether another Pod has an address in the Pod network; nil for never.
	UsedByOtherPod func(pod *corev1.Pod, a netip.Addr) bool
	// Zone returns the zone of a Node, or "".
	Zone func(node string) string
}

// selectedPods returns the running Pods that the Service selects.
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

// notTerminated reports whether a Pod has containers that may answer, or may still get them.
func notTerminated(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// danmEpsByPod returns the DanmEps of each Pod, by the Pod's UID and node. The UID excludes those
// of an earlier Pod of the same name, and the node those that another node forged. Of two DanmEps
// for one interface, as after a new sandbox, the newer one counts.
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

// podKey identifies a Pod and its node.
type podKey struct {
	uid  types.UID
	node string
}

func podKeyOf(pod *corev1.Pod) podKey { return podKey{pod.UID, pod.Spec.NodeName} }

// newerThan orders by creation, then by name.
func newerThan(a, b *v1.DanmEp) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name > b.Name
}

// requestedNetwork returns the network of the Service that a DanmEp is on; nil for another network,
// and for an earlier one of the same name.
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

// hasFamily reports whether the Service has the family of an address. A Service without families is
// older than that field, and has both.
func (s *Snapshot) hasFamily(a netip.Addr) bool {
	family := corev1.IPv6Protocol
	if a.Is4() {
		family = corev1.IPv4Protocol
	}
	return len(s.Service.Spec.IPFamilies) == 0 || slices.Contains(s.Service.Spec.IPFamilies, family)
}

// withholdReason returns why a Pod's address on a network is not published, or "". A DanmEp is not
// trusted, because one node writes it, and a network may be older than the rules of admission.
func (s *Snapshot) withholdReason(n *network.Network, pod *corev1.Pod, a netip.Addr) string {
	if subnet := subnetOf(n, a); !n.Delegates() && (subnet == nil || !subnet.CIDR.Contains(a)) {
		return "must be in the network's subnet: delete the Pod to get another address"
	}
	return s.clusterRangeReason(n.Ref.Kind, pod, a)
}

func subnetOf(n *network.Network, a netip.Addr) *network.Subnet {
	if a.Is4() {
		return n.V4
	}
	return n.V6
}

// clusterRangeReason returns why an address is published on no network, or "". A Pod's own address
// in a range of Pods is allowed, as in Kubernetes: a network that delegates the first interface has
// such addresses.
func (s *Snapshot) clusterRangeReason(kind string, pod *corev1.Pod, a netip.Addr) string {
	if s.Ranges != nil {
		for _, r := range s.Ranges.Containing(a) {
			switch {
			case r.Purpose == network.RangeNodeSubnets && (kind != v1.KindTenantNetwork || s.permitsNodeSubnet(a)):
			case r.Purpose == network.RangePods && hasPodIP(pod, a):
			default:
				return fmt.Sprintf("must not be in %s: use another subnet", r)
			}
		}
	}
	if s.UsedByOtherPod != nil && s.UsedByOtherPod(pod, a) {
		return "must not be that of another Pod in the Pod network: use another subnet"
	}
	return ""
}

func hasPodIP(pod *corev1.Pod, a netip.Addr) bool {
	return slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == a.String() })
}

// permitsNodeSubnet reports whether an administrator lets tenants of the namespace use an address
// in the nodes' subnets. The addresses of the nodes themselves, and the ranges of Pods and
// Services, are never permitted, because a tenant does not own what answers there.
func (s *Snapshot) permitsNodeSubnet(a netip.Addr) bool {
	return slices.ContainsFunc(s.PermittedSubnets, func(p netip.Prefix) bool { return p.Contains(a) })
}

// NeedsPermittedSubnets reports whether the endpoints depend on PermittedSubnets.
func (s *Snapshot) NeedsPermittedSubnets() bool {
	return s.Ranges != nil && slices.ContainsFunc(s.DanmEps, func(ep v1.DanmEp) bool {
		return ep.Spec.APIType == v1.KindTenantNetwork && slices.ContainsFunc(publishableAddresses(&ep), func(a netip.Addr) bool {
			return slices.ContainsFunc(s.Ranges.Containing(a), func(r network.ClusterRange) bool { return r.Purpose == network.RangeNodeSubnets })
		})
	})
}

// publishableAddresses returns the addresses of a DanmEp that an EndpointSlice may contain: the API
// server rejects a whole slice for one loopback, link-local or multicast address.
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

// newEndpoint returns the endpoint of a candidate.
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

// endpointConditions returns the conditions of KEP-1672: serving is the Pod's readiness,
// terminating its deletion, and ready both, unless the Service publishes every Pod.
func endpointConditions(svc *corev1.Service, pod *corev1.Pod) discoveryv1.EndpointConditions {
	serving, terminating := endpointutil.IsPodReady(pod), pod.DeletionTimestamp != nil
	ready := svc.Spec.PublishNotReadyAddresses || serving && !terminating
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}
