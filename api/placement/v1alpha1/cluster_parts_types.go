// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaintEffect says what a taint does to placements that do not tolerate it.
// +kubebuilder:validation:Enum=NoSchedule;NoExecute
type TaintEffect string

// Effects of a taint, with the meaning that they have on Nodes.
const (
	// TaintNoSchedule keeps new placements away.
	TaintNoSchedule TaintEffect = "NoSchedule"
	// TaintNoExecute also moves away what is there.
	TaintNoExecute TaintEffect = "NoExecute"
)

// Taint keeps placements away.
type Taint struct {
	// Key of the taint.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// Value of the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`

	// Effect on placements that do not tolerate it.
	Effect TaintEffect `json:"effect"`
}

// Toleration matches taints: an empty key all, an empty value all of that key.
type Toleration struct {
	// Key of the taints; empty for all.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key,omitempty"`

	// Value of the taints; empty for all.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`

	// Effect of the taints; empty for all.
	// +optional
	Effect TaintEffect `json:"effect,omitempty"`
}

// DrainMode says what a drain does.
// +kubebuilder:validation:Enum=Off;Move
type DrainMode string

// Modes of a drain.
const (
	// DrainOff drains nothing.
	DrainOff DrainMode = "Off"
	// DrainMove moves all that has room elsewhere.
	DrainMove DrainMode = "Move"
)

// Drain moves a cluster's placements elsewhere.
type Drain struct {
	// Mode of the drain.
	// +kubebuilder:default=Off
	Mode DrainMode `json:"mode,omitempty"`

	// MaxConcurrentMoves bounds how many objects move at a time.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrentMoves int32 `json:"maxConcurrentMoves,omitempty"`

	// Deadline after which what could not move is named in the condition Drained.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
}

// Limits are upper bounds; what is absent is unlimited.
type Limits struct {
	// CPU that the Pods of all placed objects request.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$') : type(self) == int && self >= 0`,message=`must be a quantity from 0, such as "16" or "500m"`
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// Memory that the Pods of all placed objects request.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$') : type(self) == int && self >= 0`,message=`must be a quantity from 0, such as "64Gi"`
	Memory *resource.Quantity `json:"memory,omitempty"`

	// Pods of all placed objects.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pods *int32 `json:"pods,omitempty"`

	// Replicas of each single object.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
}
