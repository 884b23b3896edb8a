// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstallationName is the name of the only Installation.
const InstallationName = "patchbay"

// Installation is Patchbay as it runs in this cluster. There is one, with the name patchbay. A user
// who may write it can run any program as root on all nodes, because it has the templates of the Pods that do.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule=`self.metadata.name == 'patchbay'`,message=`metadata.name: must be patchbay, because there is only one Installation`
type Installation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the operator installs. Without it, every part has its defaults.
	// +optional
	Spec InstallationSpec `json:"spec,omitempty"`

	// Status is what the operator has installed.
	// +optional
	Status InstallationStatus `json:"status,omitempty"`
}

// InstallationSpec is what the operator installs.
// +kubebuilder:validation:XValidation:rule=`!has(self.defaultDelegate) || self.defaultDelegate == "" || !has(self.features) || !has(self.features.nodeConfiguration) || self.features.nodeConfiguration`,fieldPath=`.defaultDelegate`,message=`must be empty if features.nodeConfiguration is false: Pods without an annotation do not start then`
type InstallationSpec struct {
	// Version is the version of Patchbay. An operator installs its own version only, and changes nothing while
	// this field names another one. If it is not set, the operator's version.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// Registry is where the images are, with the folder, such as registry.example/patchbay. If it is not set, the
	// registry of the release.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches(r'^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$')`,message=`must be a registry with an optional port and folder, such as registry.example/patchbay`
	Registry string `json:"registry,omitempty"`

	// ImagePullPolicy is that of the images of all parts. If it is not set, IfNotPresent.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never;""
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// LogLevel is what all parts log. If it is not set, info.
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// DefaultDelegate is the name of the file, in the nodes' folder of CNI configurations, that Pods without an
	// annotation get while no network default is for them, such as 10-calico.conflist. If it is not set, the first file
	// beside Patchbay's. On a node without the file, the node daemon is not ready, and does not install Patchbay's
	// configuration, so that the roll-out stops.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches(r'^[a-zA-Z0-9_.][a-zA-Z0-9_.-]*\.(conflist|conf|json)$')`,message=`must be the name of a file without its folder that ends in .conflist, .conf or .json, such as 10-calico.conflist`
	// +kubebuilder:validation:XValidation:rule=`self != "00-patchbay.conflist"`,message=`must not be Patchbay's own file`
	DefaultDelegate string `json:"defaultDelegate,omitempty"`

	// Features are what can be switched off.
	// +optional
	Features Features `json:"features,omitempty"`

	// Parts are the programs of Patchbay.
	// +optional
	Parts Parts `json:"parts,omitempty"`
}

// LogLevel is what a program logs.
// +kubebuilder:validation:Enum=info;debug;""
type LogLevel string

// Levels of logs.
const (
	// LogInfo is the default.
	LogInfo LogLevel = "info"
	// LogDebug also has debug messages.
	LogDebug LogLevel = "debug"
)

// Features are switches. All are on if they are not set.
type Features struct {
	// Metrics opens the ports from which Prometheus scrapes the node daemon and the controller.
	// +optional
	Metrics *bool `json:"metrics,omitempty"`

	// NodeConfiguration gives Pods without an annotation the node's own CNI configuration while no network
	// default is for them. If it is off, such Pods do not start.
	// +optional
	NodeConfiguration *bool `json:"nodeConfiguration,omitempty"`

	// TenantRoles adds the rights on TenantNetworks to Kubernetes' roles view, edit and admin. If it is off,
	// bind roles of your own to tenants.
	// +optional
	TenantRoles *bool `json:"tenantRoles,omitempty"`
}

// Parts are the programs of Patchbay.
type Parts struct {
	// Node is the DaemonSet patchbayd, which runs on every node.
	// +optional
	Node NodePart `json:"node,omitempty"`

	// Controller is the Deployment patchbay-controller.
	// +optional
	Controller ControllerPart `json:"controller,omitempty"`

	// PlacementAgent is the Deployment patchbay-agent, for a cluster that belongs to a hub.
	// +optional
	PlacementAgent PlacementAgentPart `json:"placementAgent,omitempty"`
}

// InstallationList is a list of Installations.
// +kubebuilder:object:root=true
type InstallationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Installation `json:"items"`
}
