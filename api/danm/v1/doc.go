// SPDX-License-Identifier: Apache-2.0

// Package v1 is the network management API danm.io/v1: the kinds that netadmins
// and tenants write (ClusterNetwork, TenantNetwork, DanmNet, TenantConfig) and
// those that Patchbay's node daemon writes (DanmEp, NodeNetwork).
//
// JSON names of the network kinds are DANM's, so its manifests apply unchanged.
// What one object decides is checked by CEL rules in the generated CRDs; what
// needs other objects is checked at admission.
//
// +kubebuilder:object:generate=true
// +groupName=danm.io
package v1
