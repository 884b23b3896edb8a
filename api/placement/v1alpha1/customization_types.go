// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Customization changes the manifests of objects for clusters. The hub applies first the Customizations of
// the namespace patchbay-system, which are for objects of all namespaces and for cluster-scoped objects,
// then those of the object's own namespace, each in the order of their names.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Valid,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Customization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the rules.
	Spec CustomizationSpec `json:"spec"`

	// Status tells whether the Customization is valid.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// CustomizationSpec has rules that change objects for clusters.
type CustomizationSpec struct {
	// Match selects the objects and clusters of the rules. Default: all.
	// +optional
	Match CustomizationMatch `json:"match,omitempty"`

	// Rules are applied in order, each to the result of the one before.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Rules []Rule `json:"rules"`
}

// CustomizationMatch selects objects and clusters that match all its fields.
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

// RuleOp is what a rule does.
// +kubebuilder:validation:Enum=set;remove;merge
type RuleOp string

// What a rule does.
const (
	// RuleSet sets the field, and creates the objects that contain it.
	RuleSet RuleOp = "set"
	// RuleRemove removes the field.
	RuleRemove RuleOp = "remove"
	// RuleMerge merges an object into the field, as a JSON merge patch does.
	RuleMerge RuleOp = "merge"
)

// Rule changes one field. It cannot change apiVersion, kind and metadata, except labels and annotations.
// +kubebuilder:validation:XValidation:rule=`!has(self.op) || self.op != "remove" || !has(self.cel)`,fieldPath=`.cel`,reason=FieldValueForbidden,message=`op remove takes neither cel nor value`
// +kubebuilder:validation:XValidation:rule=`!self.path.matches("^(apiVersion|kind)($|[.\\[])") && (!self.path.matches("^metadata[.]") || self.path.matches("^metadata[.](labels|annotations)($|[.\\[])"))`,fieldPath=`.path`,reason=FieldValueForbidden,message=`rules may change labels and annotations in metadata, and neither apiVersion nor kind`
type Rule struct {
	// Path of the field, such as "spec.template.spec.containers[0].image" or
	// `metadata.annotations["example.com/a"]`; "" is the whole object, with op merge only.
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path"`

	// Op is what the rule does with the field.
	// +optional
	// +kubebuilder:default=set
	Op RuleOp `json:"op,omitempty"`

	// CEL is an expression for the value. Its variables are object (the result of the rules before) and
	// cluster (with the fields name, labels, annotations and properties).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	CEL string `json:"cel,omitempty"`

	// Value of the field.
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
