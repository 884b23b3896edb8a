// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Customization changes objects on their way to clusters. Those of the namespace
// patchbay-system are for objects of all namespaces and for cluster-scoped ones, and
// come first; then those of the object's own namespace; each by name.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Valid,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Customization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is changed.
	Spec CustomizationSpec `json:"spec"`

	// Status says whether it can be used.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// CustomizationSpec says which objects are changed for which clusters, and how.
type CustomizationSpec struct {
	// Match says for what the rules are; absent: all.
	// +optional
	Match CustomizationMatch `json:"match,omitempty"`

	// Rules are carried out in order, each on what the one before made.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Rules []Rule `json:"rules"`
}

// CustomizationMatch selects objects and clusters. All parts that are there must match.
type CustomizationMatch struct {
	// Kinds of the objects, as "Kind" or "Kind.group".
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Kinds []KindName `json:"kinds,omitempty"`

	// Selector of the objects' labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// ClusterSelector of the Clusters' labels.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
}

// KindName is a kind, as "Kind" or "Kind.group".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=317
type KindName string

// RuleOp says what a rule does.
// +kubebuilder:validation:Enum=set;remove;merge
type RuleOp string

// What a rule does.
const (
	// RuleSet sets the field, with all that is above it.
	RuleSet RuleOp = "set"
	// RuleRemove removes the field.
	RuleRemove RuleOp = "remove"
	// RuleMerge merges an object into the field, as a JSON merge patch does.
	RuleMerge RuleOp = "merge"
)

// Rule changes one field. It leaves apiVersion, kind and all of metadata but labels and
// annotations as they are.
// +kubebuilder:validation:XValidation:rule=`!has(self.op) || self.op != "remove" || !has(self.cel)`,fieldPath=`.cel`,reason=FieldValueForbidden,message=`op remove takes neither cel nor value`
// +kubebuilder:validation:XValidation:rule=`!self.path.matches("^(apiVersion|kind)($|[.\\[])") && (!self.path.matches("^metadata[.]") || self.path.matches("^metadata[.](labels|annotations)($|[.\\[])"))`,fieldPath=`.path`,reason=FieldValueForbidden,message=`rules may change labels and annotations in metadata, and neither apiVersion nor kind`
type Rule struct {
	// Path of the field, by dots: "spec.template.spec.containers[0].image",
	// `metadata.annotations["example.com/a"]`, or "" for the object with op merge.
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path"`

	// Op is what is done.
	// +optional
	// +kubebuilder:default=set
	Op RuleOp `json:"op,omitempty"`

	// CEL is an expression for the value. Its variables are object (as the rules
	// before left it) and cluster (name, labels, annotations, properties).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	CEL string `json:"cel,omitempty"`

	// Value is the value itself.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// CustomizationList is a list of Customizations.
// +kubebuilder:object:root=true
type CustomizationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Customization `json:"items"`
}
