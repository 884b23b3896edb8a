// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Class is what becomes of a Service.
type Class int

// Verdicts.
const (
	// Unmanaged: it has no annotation of ours, or is going. Nothing of ours stays.
	Unmanaged Class = iota
	// Unsupported: its annotations are ours, its kind cannot be served. Nothing of ours
	// stays.
	Unsupported
	// Invalid: nobody can tell what its annotations mean. What it had stays as it
	// was, as far as its Pods are still there.
	Invalid
	// Managed: it gets endpoints.
	Managed
)

// Reasons of Events on Services.
const (
	// ReasonNotServed: the Service is of a kind that has no endpoints of ours.
	ReasonNotServed = "NotServed"
	// ReasonInvalidAnnotations: the annotations are wrong.
	ReasonInvalidAnnotations = "InvalidAnnotations"
	// ReasonNetworkNotFound: a network of the Service does not exist.
	ReasonNetworkNotFound = "NetworkNotFound"
	// ReasonNetworkNotAllowed: a network of the Service is not for its namespace.
	ReasonNetworkNotAllowed = "NetworkNotAllowed"
	// ReasonNetworkInvalid: a network of the Service is older than a rule that it breaks.
	ReasonNetworkInvalid = "NetworkInvalid"
	// ReasonAddressWithheld: an address of a Pod must not be published.
	ReasonAddressWithheld = "AddressWithheld"
	// ReasonEndpointsNotWritten: the API server refuses what should be written.
	ReasonEndpointsNotWritten = "EndpointsNotWritten"
)

// Classification is a verdict with its reason.
type Classification struct {
	Class Class
	// Request is what a Service that is Served asks for.
	Request *network.ServiceRequest
	// Reason and Message are for an Event about one that is Refused or Broken.
	Reason, Message string
}

// Classify says what becomes of a Service.
func Classify(svc *corev1.Service) Classification {
	if svc.DeletionTimestamp != nil {
		return Classification{Class: Unmanaged}
	}
	request, err := network.ParseService(svc.Namespace, svc.Annotations, false)
	if err == nil && request == nil {
		return Classification{Class: Unmanaged}
	}
	if why := unsupportedReason(&svc.Spec); why != "" {
		return Classification{Class: Unsupported, Reason: ReasonNotServed, Message: why}
	}
	if err != nil {
		return Classification{Class: Invalid, Reason: ReasonInvalidAnnotations, Message: fmt.Sprintf("the endpoints stay as they were: %v", err)}
	}
	return Classification{Class: Managed, Request: request}
}

// unsupportedReason says why Services of this kind are not served, or nothing.
func unsupportedReason(spec *corev1.ServiceSpec) string {
	const remedy = "create the Service anew with type ClusterIP and clusterIP None"
	switch {
	case len(spec.Selector) > 0:
		return "spec.selector: Kubernetes makes the endpoints of a Service with a selector, and there would be two sets: leave it out, the annotation danm.io/selector takes its place"
	case spec.Type == corev1.ServiceTypeExternalName:
		return "spec.type ExternalName: it is an alias and has no endpoints: " + remedy
	case spec.Type != "" && spec.Type != corev1.ServiceTypeClusterIP, spec.ClusterIP != corev1.ClusterIPNone:
		return fmt.Sprintf("spec.type %s, spec.clusterIP %s: only headless Services are served, since a node cannot reach the MACVLAN and IPVLAN Pods that run on it, and a part of kube-proxy's connections would vanish: %s",
			spec.Type, spec.ClusterIP, remedy)
	}
	return ""
}

// RelevantAnnotations are those of a Service that mean something here.
func RelevantAnnotations(svc *corev1.Service) map[string]string {
	ours := map[string]string{}
	for key, value := range svc.Annotations {
		if strings.HasPrefix(key, "danm.io/") || strings.HasPrefix(key, "danm.k8s.io/") {
			ours[key] = value
		}
	}
	return ours
}
