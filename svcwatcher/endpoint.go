// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	endpointutil "k8s.io/endpointslice/util"
)

// endpoint is a candidate as it stands in a slice.
func (s *Source) endpoint(c candidate) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{c.address.String()},
		Conditions: conditions(s.Service, c.pod),
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

// conditions are a Pod's as KEP-1672 has them: serving is the Pod's readiness,
// terminating its end; ready is both, unless the Service publishes every Pod.
func conditions(svc *corev1.Service, pod *corev1.Pod) discoveryv1.EndpointConditions {
	serving, terminating := endpointutil.IsPodReady(pod), pod.DeletionTimestamp != nil
	ready := svc.Spec.PublishNotReadyAddresses || serving && !terminating
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}
