// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Keep computes the endpoints of a Service whose annotations nobody can read: those
// that it had, as long as their Pods live and have these addresses, with what the
// Pods are now. None is added, as nobody knows which. It needs no Request.
func Keep(s *Source, existing []discoveryv1.EndpointSlice) []Group {
	interfaces, pods := s.interfaces(), map[types.UID]*corev1.Pod{}
	for i := range s.Pods {
		if alive(&s.Pods[i]) {
			pods[s.Pods[i].UID] = &s.Pods[i]
		}
	}
	has := func(pod *corev1.Pod, a netip.Addr) bool {
		for _, ep := range interfaces[placeOf(pod)] {
			if slices.Contains(addresses(ep), a) && s.clusterRule(ep.Spec.APIType, pod, a) == "" {
				return true
			}
		}
		return false
	}
	groups, seen := grouping{}, map[netip.Addr]bool{}
	for i := range existing {
		if !owned(existing[i].OwnerReferences, s.Service) {
			continue
		}
		for _, e := range existing[i].Endpoints {
			pod, a := podOf(e, pods), addressOf(e)
			if pod == nil || !has(pod, a) || seen[a] {
				continue
			}
			seen[a] = true
			groups.add(existing[i].AddressType, existing[i].Ports, s.endpoint(candidate{address: a, pod: pod}))
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

// addressOf is an endpoint's address; the zero Addr when it has not one.
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
