// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of Patchbay's operator, operator.patchbay.io/v1alpha1. A cluster admin
// writes one Installation, and patchbay-operator installs and upgrades Patchbay as the Installation says.
//
// The template of each part has the schema of Kubernetes' PodTemplateSpec, which scripts/podtemplates
// adds to the generated CRD with the CRD compiler.
//
// +kubebuilder:object:generate=true
// +groupName=operator.patchbay.io
package v1alpha1
