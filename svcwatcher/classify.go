// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/network"
)

// Verdict is what becomes of a Service.
type Verdict int

// Verdicts.
const (
	// Foreign: it has no annotation of ours, or is going. Nothing of ours stays.
	Foreign Verdict = iota
	// Refused: its annotations are ours, its kind cannot be served. Nothing of ours
	// stays.
	Refused
	// Broken: nobody can tell what its annotations mean. What it had stays as it
	// was, as far as its Pods are still there.
	Broken
	// Served: it gets endpoints.
	Served
)

// Reasons of Events on Services.
const (
	// ReasonNotServed: the Service is of a kind that has no endpoints of ours.
	ReasonNotServed = "NotServed"
	// ReasonInvalid: the annotations are wrong.
	ReasonInvalid = "InvalidAnnotations"
	// ReasonNoNetwork: a network of the Service does not exist.
	ReasonNoNetwork = "NetworkNotFound"
	// ReasonNotAllowed: a network of the Service is not for its namespace.
	ReasonNotAllowed = "NetworkNotAllowed"
	// ReasonNetworkInvalid: a network of the Service is older than a rule that it breaks.
	ReasonNetworkInvalid = "NetworkInvalid"
	// ReasonWithheld: an address of a Pod must not be published.
	ReasonWithheld = "AddressWithheld"
	// ReasonNotWritten: the API server refuses what should be written.
	ReasonNotWritten = "EndpointsNotWritten"
)

// Judgement is a verdict with its reason.
type Judgement struct {
	Verdict Verdict
	// Request is what a Service that is Served asks for.
	Request *network.ServiceRequest
	// Reason and Message are for an Event about one that is Refused or Broken.
	Reason, Message string
}

// Judge says what becomes of a Service.
func Judge(svc *corev1.Service) Judgement {
	if svc.DeletionTimestamp != nil {
		return Judgement{Verdict: Foreign}
	}
	request, err := network.ParseService(svc.Namespace, svc.Annotations, false)
	if err == nil && request == nil {
		return Judgement{Verdict: Foreign}
	}
	if why := unservable(&svc.Spec); why != "" {
		return Judgement{Verdict: Refused, Reason: ReasonNotServed, Message: why}
	}
	if err != nil {
		return Judgement{Verdict: Broken, Reason: ReasonInvalid, Message: fmt.Sprintf("the endpoints stay as they were: %v", err)}
	}
	return Judgement{Verdict: Served, Request: request}
}

// unservable says why Services of this kind are not served, or nothing.
func unservable(spec *corev1.ServiceSpec) string {
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

// Annotations are those of a Service that mean something here.
func Annotations(svc *corev1.Service) map[string]string {
	ours := map[string]string{}
	for key, value := range svc.Annotations {
		if strings.HasPrefix(key, "danm.io/") || strings.HasPrefix(key, "danm.k8s.io/") {
			ours[key] = value
		}
	}
	return ours
}
