// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodePart is the DaemonSet patchbayd.
type NodePart struct {
	// Template is a PodTemplateSpec that is merged over the default one, as kubectl patch does by default
	// (strategic merge): containers, volumes and environment variables merge by name. A patch needs only the
	// fields that it changes, and may have the directives $patch and $retainKeys.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`

	// UpdateStrategy is how Pods are replaced when the template changes.
	// +optional
	UpdateStrategy NodeUpdateStrategy `json:"updateStrategy,omitempty"`

	// ProgressDeadlineSeconds is how long a new Pod may take to become ready before the roll-out is reported
	// as stopped. If it is not set, 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// LogLevel is what this part logs. If it is not set, that of the Installation.
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`
}

// NodeUpdateStrategy is how the Pods of the DaemonSet are replaced. The new Pod cannot run beside the old
// one, because both use the node's network.
type NodeUpdateStrategy struct {
	// Type is RollingUpdate, or OnDelete: then a Pod is replaced when you delete it. If it is not set,
	// RollingUpdate.
	// +optional
	// +kubebuilder:validation:Enum=RollingUpdate;OnDelete;""
	Type appsv1.DaemonSetUpdateStrategyType `json:"type,omitempty"`

	// MaxUnavailable is how many nodes may be without a ready daemon during a roll-out, as a number or a
	// percentage of the nodes. It counts after the first node has become ready with the new template: until
	// then, it is 1. If it is not set, 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 1 && self <= 100000 : string(self).matches('^([1-9][0-9]?|100)%$')`,message=`must be a number of at least 1, or a percentage from 1% to 100%`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// ControllerPart is the Deployment patchbay-controller.
type ControllerPart struct {
	// Replicas is how many Pods run, on different nodes. If it is not set, 2. A cluster of one node has room for one: with
	// more, the part never becomes ready there.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Replicas *int32 `json:"replicas,omitempty"`

	// Template is a PodTemplateSpec that is merged over the default one, as kubectl patch does by default
	// (strategic merge): containers, volumes and environment variables merge by name. A patch needs only the
	// fields that it changes, and may have the directives $patch and $retainKeys.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`

	// UpdateStrategy is how Pods are replaced when the template changes.
	// +optional
	UpdateStrategy DeploymentUpdateStrategy `json:"updateStrategy,omitempty"`

	// ProgressDeadlineSeconds is how long the roll-out may take for the next step before it is reported as
	// stopped. If it is not set, 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// LogLevel is what this part logs. If it is not set, that of the Installation.
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`
}

// DeploymentUpdateStrategy is how the Pods of a Deployment are replaced.
type DeploymentUpdateStrategy struct {
	// Type is RollingUpdate, or Recreate: then all Pods end before the new ones start. If it is not set,
	// RollingUpdate.
	// +optional
	// +kubebuilder:validation:Enum=RollingUpdate;Recreate;""
	Type appsv1.DeploymentStrategyType `json:"type,omitempty"`

	// MaxUnavailable is how many Pods may be missing during a roll-out, as a number or a percentage. If it is
	// not set, 1 for the controller and 25% for the agent.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 100000 : string(self).matches('^([0-9][0-9]?|100)%$')`,message=`must be a number of at least 0, or a percentage from 0% to 100%`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// MaxSurge is how many Pods may run in addition during a roll-out, as a number or a percentage. It must be
	// 0 for Pods on the node's network, as those of the controller are: two of them have no room on one node.
	// If it is not set, 0 for the controller and 25% for the agent.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 100000 : string(self).matches('^([0-9][0-9]?|100)%$')`,message=`must be a number of at least 0, or a percentage from 0% to 100%`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// PlacementAgentPart is the Deployment patchbay-agent. The Secret patchbay-agent-hub in the namespace
// patchbay-system must have the key kubeconfig, with the hub's address, its certificate authority and the
// join token.
// +kubebuilder:validation:XValidation:rule=`!has(self.enabled) || !self.enabled || (has(self.cluster) && self.cluster != "")`,fieldPath=`.cluster`,reason=FieldValueRequired,message=`must be the name of this cluster at its hub if the agent is enabled`
type PlacementAgentPart struct {
	// Enabled installs the agent.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// Cluster is the name of the Cluster object at the hub that stands for this cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=55
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')`,message=`must be the name of a Cluster: use lower case letters, digits and "-"`
	Cluster string `json:"cluster,omitempty"`

	// Template is a PodTemplateSpec that is merged over the default one, as kubectl patch does by default
	// (strategic merge): containers, volumes and environment variables merge by name. A patch needs only the
	// fields that it changes, and may have the directives $patch and $retainKeys.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`

	// UpdateStrategy is how Pods are replaced when the template changes.
	// +optional
	UpdateStrategy DeploymentUpdateStrategy `json:"updateStrategy,omitempty"`

	// ProgressDeadlineSeconds is how long the roll-out may take for the next step before it is reported as
	// stopped. If it is not set, 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// LogLevel is what this part logs. If it is not set, that of the Installation.
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`
}
