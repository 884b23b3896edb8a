// SPDX-License-Identifier: Apache-2.0

// Package svcwatcher computes the EndpointSlices of Services on networks of ours.
//
// It is pure. Classify decides whether a Service gets endpoints, Desired computes them from Pods
// and DanmEps, Retained computes those of a Service whose annotations became invalid, and Plan the
// fewest writes from the existing slices to the desired ones. Conditions follow KEP-1672, and the
// filling of slices follows Kubernetes' own controller (k8s.io/endpointslice). Package
// controller/internal/services reads and writes the API server.
package svcwatcher
