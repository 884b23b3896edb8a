// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Class says what endpoints a Service gets.
type Class int

// Classes of Services.
const (
	// Unmanaged: the Service has no annotation of ours, or is being deleted. It keeps no slice of
	// ours.
	Unmanaged Class = iota
	// Unsupported: the Service has annotations of ours, but a type that cannot have endpoints on
	// networks. It keeps no slice of ours.
	Unsupported
	// Invalid: the annotations cannot be read. The Service keeps the endpoints that it has, while
	// their Pods exist.
	Invalid
	// Managed: the Service gets endpoints.
	Managed
)

// Classification is the class of a Service with its reason.
type Classification struct {
	Class Class
	// Request is the parsed request of a Managed Service.
	Request *network.ServiceRequest
	// Reason and Message are those of the Event on an Unsupported or Invalid Service.
	Reason, Message string
}

// Classify returns the class of a Service.
func Classify(svc *corev1.Service) Classification {
	if svc.DeletionTimestamp != nil {
		return Classification{Class: Unmanaged}
	}
	request, err := network.ParseService(svc.Namespace, svc.Annotations, false)
	if err == nil && request == nil {
		return Classification{Class: Unmanaged}
	}
	if why := unsupportedReason(&svc.Spec); why != "" {
		return Classification{Class: Unsupported, Reason: v1.ReasonUnsupportedService, Message: why}
	}
	if err != nil {
		return Classification{Class: Invalid, Reason: v1.ReasonInvalidAnnotations, Message: fmt.Sprintf("the Service keeps the endpoints that it has: %v", err)}
	}
	return Classification{Class: Managed, Request: request}
}

// unsupportedReason returns why a Service of this type gets no endpoints, or "".
func unsupportedReason(spec *corev1.ServiceSpec) string {
	const remedy = "create the Service again with type ClusterIP and clusterIP None"
	switch {
	case len(spec.Selector) > 0:
		return "spec.selector must be empty: Kubernetes makes endpoints for a Service with a selector, so that there would be two sets; use the annotation danm.io/selector"
	case spec.Type == corev1.ServiceTypeExternalName:
		return "spec.type must not be ExternalName, which has no endpoints: " + remedy
	case spec.Type != "" && spec.Type != corev1.ServiceTypeClusterIP, spec.ClusterIP != corev1.ClusterIPNone:
		return fmt.Sprintf("spec.type %s, spec.clusterIP %s: must be a headless Service, because a node cannot reach its own MACVLAN and IPVLAN Pods, and a part of kube-proxy's connections would fail: %s",
			spec.Type, spec.ClusterIP, remedy)
	}
	return ""
}
