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
	"k8s.io/apimachinery/pkg/types"
	endpointutil "k8s.io/endpointslice/util"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Endpoints are the endpoints that a Service should have.
type Endpoints struct {
	// Groups are sorted.
	Groups []Group
	// Withheld are the addresses that are not published, sorted.
	Withheld []Withheld
}

// Withheld is an address of a Pod that is not published.
type Withheld struct {
	// Network is where the Pod has the address.
	Network network.Ref
	// Pod is the Pod's name.
	Pod string
	// Address of the Pod.
	Address netip.Addr
	// Reason states the rule, and what to do.
	Reason string
}

// String returns the network, the field of its subnet, the address and the reason.
func (w Withheld) String() string {
	field := "cidr"
	if w.Address.Is6() {
		field = "net6"
	}
	return fmt.Sprintf("%s: spec.Options.%s: address %s of Pod %s %s", w.Network, field, w.Address, w.Pod, w.Reason)
}

// Desired computes the endpoints of a Managed Service: the union over its networks, each address
// once.
func Desired(s *Snapshot) Endpoints {
	interfaces := s.danmEpsByPod()
	chosen := map[netip.Addr]candidate{}
	var out Endpoints
	for _, pod := range s.selectedPods() {
		serving := endpointutil.IsPodReady(pod)
		for _, ep := range interfaces[podKeyOf(pod)] {
			n := s.requestedNetwork(ep)
			if n == nil {
				continue
			}
			for _, a := range publishableAddresses(ep) {
				if !s.hasFamily(a) {
					continue
				}
				if rule := s.withholdReason(n, pod, a); rule != "" {
					out.Withheld = append(out.Withheld, Withheld{Network: n.Ref, Pod: pod.Name, Address: a, Reason: rule})
					continue
				}
				c := candidate{address: a, pod: pod, serving: serving}
				if other, taken := chosen[a]; !taken || c.preferredTo(other) {
					chosen[a] = c
				}
			}
		}
	}
	groups := grouping{}
	for _, c := range chosen {
		groups.add(familyOf(c.address), portsOf(s.Service, c.pod), s.newEndpoint(c))
	}
	out.Groups = groups.sorted()
	slices.SortFunc(out.Withheld, func(a, b Withheld) int {
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.String(), b.String()))
	})
	return out
}

func familyOf(a netip.Addr) discoveryv1.AddressType {
	if a.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

// candidate is an address of a Pod on a network of the Service.
type candidate struct {
	address netip.Addr
	pod     *corev1.Pod
	serving bool
}

// preferredTo orders two Pods that have one address on separate networks: a ready Pod wins, then
// the smaller name.
func (c candidate) preferredTo(other candidate) bool {
	if c.serving != other.serving {
		return c.serving
	}
	return cmp.Or(strings.Compare(c.pod.Name, other.pod.Name), strings.Compare(string(c.pod.UID), string(other.pod.UID))) < 0
}

// Retained computes the endpoints of an Invalid Service: the existing ones whose Pods still run and
// have these addresses, with the Pods' present conditions. It adds none, because the selector is
// unknown. It needs no Request.
func Retained(s *Snapshot, existing []discoveryv1.EndpointSlice) []Group {
	interfaces, pods := s.danmEpsByPod(), map[types.UID]*corev1.Pod{}
	for i := range s.Pods {
		if notTerminated(&s.Pods[i]) {
			pods[s.Pods[i].UID] = &s.Pods[i]
		}
	}
	has := func(pod *corev1.Pod, a netip.Addr) bool {
		for _, ep := range interfaces[podKeyOf(pod)] {
			if slices.Contains(publishableAddresses(ep), a) && s.clusterRangeReason(ep.Spec.APIType, pod, a) == "" {
				return true
			}
		}
		return false
	}
	groups, seen := grouping{}, map[netip.Addr]bool{}
	for i := range existing {
		if !ownedBy(existing[i].OwnerReferences, s.Service) {
			continue
		}
		for _, e := range existing[i].Endpoints {
			pod, a := podOf(e, pods), addressOf(e)
			if pod == nil || !has(pod, a) || seen[a] {
				continue
			}
			seen[a] = true
			groups.add(existing[i].AddressType, existing[i].Ports, s.newEndpoint(candidate{address: a, pod: pod}))
		}
	}
	return groups.sorted()
}

func podOf(e discoveryv1.Endpoint, pods map[types.UID]*corev1.Pod) *corev1.Pod {
	if e.TargetRef == nil {
		return nil
	}
	return pods[e.TargetRef.UID]
}

// addressOf returns an endpoint's address; the zero Addr unless it has exactly one.
func addressOf(e discoveryv1.Endpoint) netip.Addr {
	if len(e.Addresses) != 1 {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return netip.Addr{}
	}
	return a
}
