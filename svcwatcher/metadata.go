// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on
	// what is ours. Kubernetes' own controllers leave such slices alone, as we do
	// those with any other value.
	ManagedBy = "svcwatcher.danm.io"

	// EndpointsAnnotation asks for v1 Endpoints besides the slices when it is "true"
	// on a Service, for programs that read nothing else.
	EndpointsAnnotation = "danm.io/endpoints"

	// MaxEndpoints is how many endpoints a slice has at most, Kubernetes' default.
	MaxEndpoints = 100
)

// labelsOf are the Service's own labels, as Kubernetes copies them, and those that
// say what a slice is.
func labelsOf(svc *corev1.Service) map[string]string {
	labels := maps.Clone(svc.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[discoveryv1.LabelServiceName] = svc.Name
	labels[discoveryv1.LabelManagedBy] = ManagedBy
	labels[corev1.IsHeadlessService] = ""
	return labels
}

// ownerReference makes the garbage collector remove what the Service leaves behind. It does not
// block the Service's deletion, which would take a right on its finalizers.
func ownerReference(svc *corev1.Service) metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID, Controller: &controller}
}

// ownedBy reports whether an object belongs to this Service, and not to a former one of
// its name.
func ownedBy(refs []metav1.OwnerReference, svc *corev1.Service) bool {
	for _, r := range refs {
		if r.UID == svc.UID && r.Kind == "Service" && r.APIVersion == "v1" {
			return true
		}
	}
	return false
}
