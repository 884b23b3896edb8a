// SPDX-License-Identifier: Apache-2.0

// Package svcwatcher says which EndpointSlices a Service on networks of ours has.
//
// It is pure: Judge says whether a Service is served, Desired computes its endpoints
// from Pods and DanmEps, Keep those of a Service whose annotations became wrong, and
// Plan the fewest writes from the slices that are there to the ones that should be.
// What is ready, serving and terminating follows KEP-1672, how slices are filled
// follows Kubernetes' own controller (k8s.io/endpointslice). Package cluster below
// reads and writes the API server.
package svcwatcher
