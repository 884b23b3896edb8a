// SPDX-License-Identifier: Apache-2.0

// Package v1 is the network management API danm.io/v1: the kinds that netadmins
// and tenants write (ClusterNetwork, TenantNetwork, DanmNet, TenantConfig) and
// those that Patchbay's node daemon writes (DanmEp, NodeNetwork).
//
// JSON names of the network kinds are DANM's, so that its manifests apply unchanged.
// CEL rules in the generated CRDs check the rules that need one object only. Admission
// checks the rules that need other objects.
//
// +kubebuilder:object:generate=true
// +groupName=danm.io
package v1
