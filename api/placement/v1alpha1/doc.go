// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the placement API placement.patchbay.io/v1alpha1, served by a
// hub: what infrastructure people write (Cluster, ClusterPlacement), what workload
// people write (Placement, Customization), and what Patchbay's programs write for each
// other (Assignment, Work at the hub; AppliedWork in each workload cluster).
//
// What one object decides is checked by CEL rules in the generated CRDs. Package
// placement says how the programs use these kinds.
//
// +kubebuilder:object:generate=true
// +groupName=placement.patchbay.io
package v1alpha1
