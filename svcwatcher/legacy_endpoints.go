// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WantsLegacyEndpoints reports whether a Service requests v1 Endpoints besides its slices.
func WantsLegacyEndpoints(svc *corev1.Service) bool {
	for _, key := range []string{EndpointsAnnotation, "danm.k8s.io/endpoints"} {
		if value, ok := svc.Annotations[key]; ok {
			return value == "true"
		}
	}
	return false
}

// LegacyEndpoints returns the groups as v1 Endpoints of both families. A label keeps Kubernetes
// from mirroring them into slices. Endpoints have no condition for a terminating Pod: it is left
// out unless the Service publishes every Pod.
func LegacyEndpoints(svc *corev1.Service, groups []Group) *corev1.Endpoints {
	labels := labelsOf(svc)
	delete(labels, discoveryv1.LabelServiceName) // a label of slices
	labels[discoveryv1.LabelSkipMirror] = "true"
	out := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Namespace: svc.Namespace, Name: svc.Name, Labels: labels, OwnerReferences: []metav1.OwnerReference{ownerReference(svc)},
	}}
	room := maxLegacyAddresses
	for i := range groups {
		subset := subsetOf(svc, &groups[i], &room)
		if len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
			out.Subsets = append(out.Subsets, subset)
		}
	}
	if room < 0 {
		out.Annotations = map[string]string{corev1.EndpointsOverCapacity: "truncated"}
	}
	return out
}

// maxLegacyAddresses is the limit of Kubernetes for v1 Endpoints.
const maxLegacyAddresses = 1000

// subsetOf returns the endpoints of a group that fit into room, and lowers room. It is negative
// afterwards when some did not fit.
func subsetOf(svc *corev1.Service, g *Group, room *int) corev1.EndpointSubset {
	var s corev1.EndpointSubset
	for _, p := range g.Ports {
		s.Ports = append(s.Ports, corev1.EndpointPort{Name: valueOrZero(p.Name), Port: valueOrZero(p.Port), Protocol: valueOrZero(p.Protocol), AppProtocol: p.AppProtocol})
	}
	for _, e := range g.Endpoints {
		if valueOrZero(e.Conditions.Terminating) && !svc.Spec.PublishNotReadyAddresses {
			continue
		}
		if *room <= 0 {
			*room = -1
			break
		}
		*room--
		a := corev1.EndpointAddress{IP: e.Addresses[0], Hostname: valueOrZero(e.Hostname), NodeName: e.NodeName, TargetRef: e.TargetRef}
		if valueOrZero(e.Conditions.Ready) {
			s.Addresses = append(s.Addresses, a)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a)
		}
	}
	return s
}
