// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MoveMode says in which order a move grows and shrinks.
// +kubebuilder:validation:Enum=MakeBeforeBreak;BreakBeforeMake
type MoveMode string

// Modes of a move.
const (
	// MakeBeforeBreak shrinks only what has a replacement.
	MakeBeforeBreak MoveMode = "MakeBeforeBreak"
	// BreakBeforeMake starts nothing before what is to go has gone: for workloads
	// that must not run twice.
	BreakBeforeMake MoveMode = "BreakBeforeMake"
)

// OnDeadline says what happens to a move that takes too long.
// +kubebuilder:validation:Enum=Hold;Proceed
type OnDeadline string

// What happens to a move at its deadline.
const (
	// DeadlineHold waits on.
	DeadlineHold OnDeadline = "Hold"
	// DeadlineProceed shrinks though the replacement is not there.
	DeadlineProceed OnDeadline = "Proceed"
)

// MovePolicy says how objects go from cluster to cluster.
type MovePolicy struct {
	// Mode. Default: MakeBeforeBreak; BreakBeforeMake for StatefulSets and Jobs.
	// +optional
	Mode MoveMode `json:"mode,omitempty"`

	// Surge is how many replicas more than desired there may be during a move, as a
	// number or a percentage, rounded up. Default: 100%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^[0-9]{1,9}%$') : type(self) == int && self >= 0 && self <= 1000000`,message=`must be a number from 0 to 1000000, or a percentage such as "25%"`
	Surge *intstr.IntOrString `json:"surge,omitempty"`

	// Unavailable is how many of the desired replicas may be missing during a move,
	// as a number or a percentage, rounded down. Default: 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^([0-9]|[1-9][0-9]|100)%$') : type(self) == int && self >= 0 && self <= 1000000`,message=`must be a number from 0 to 1000000, or a percentage from "0%" to "100%"`
	Unavailable *intstr.IntOrString `json:"unavailable,omitempty"`

	// Settle is how long a cluster keeps the object without replicas before it is
	// removed there, in which endpoints and connections go, such as "90s". Default: 0s.
	// +optional
	Settle *metav1.Duration `json:"settle,omitempty"`

	// Deadline of a move, such as "10m" or "1h30m". Default: none.
	// +optional
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// OnDeadline says what happens then.
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
}
