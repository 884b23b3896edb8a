// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on our slices.
	// Kubernetes' controllers ignore such slices, and this package ignores those with another
	// value.
	ManagedBy = "svcwatcher.danm.io"

	// EndpointsAnnotation is the annotation of a Service that requests v1 Endpoints, by the value
	// "true", for programs that read no EndpointSlices.
	EndpointsAnnotation = "danm.io/endpoints"

	// maxEndpoints is how many endpoints a slice has at most: Kubernetes' default.
	maxEndpoints = 100
)

// labelsOf returns the labels of a Service's slices: the Service's own, as Kubernetes copies them,
// and those of EndpointSlices.
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

// ownerReference lets the garbage collector delete a slice with its Service. It does not block the
// deletion of the Service, which would require a right on the Service's finalizers.
func ownerReference(svc *corev1.Service) metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID, Controller: &controller}
}

// ownedBy reports whether an object belongs to this Service, and not to an earlier one of its name.
func ownedBy(refs []metav1.OwnerReference, svc *corev1.Service) bool {
	for _, r := range refs {
		if r.UID == svc.UID && r.Kind == "Service" && r.APIVersion == "v1" {
			return true
		}
	}
	return false
}
