// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the placement API placement.patchbay.io/v1alpha1, which a hub serves. Infrastructure
// admins write Cluster and ClusterPlacement, workload admins write Placement and Customization, and
// Patchbay's programs write Assignment and Work at the hub, and AppliedWork in each workload cluster.
//
// CEL rules in the generated CRDs validate each object. Package placement describes how the programs use
// these kinds.
//
// +kubebuilder:object:generate=true
// +groupName=placement.patchbay.io
package v1alpha1
