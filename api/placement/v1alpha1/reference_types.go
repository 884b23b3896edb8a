// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/types"

// ObjectReference names an object and its present life.
type ObjectReference struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Version of the kind.
	Version string `json:"version"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Resource is the kind's plural in lower case, as in URLs.
	Resource string `json:"resource"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// UID of the object.
	UID types.UID `json:"uid"`
}
