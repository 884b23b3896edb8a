// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placement says where objects of its namespace run. It comes before every
// ClusterPlacement; the annotation on an object comes before both.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Clusters,type=string,JSONPath=`.spec.clusters.names`
// +kubebuilder:printcolumn:name=Mode,type=string,JSONPath=`.spec.replicas.mode`
// +kubebuilder:printcolumn:name=Valid,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Placement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the policy.
	// +optional
	Spec PlacementSpec `json:"spec,omitempty"`

	// Status is what became of it.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// ClusterPlacement says where objects of many namespaces run, and cluster-scoped ones.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Clusters,type=string,JSONPath=`.spec.clusters.names`
// +kubebuilder:printcolumn:name=Mode,type=string,JSONPath=`.spec.replicas.mode`
// +kubebuilder:printcolumn:name=Valid,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPlacement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the policy.
	// +optional
	Spec ClusterPlacementSpec `json:"spec,omitempty"`

	// Status is what became of it.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// PlacementSpec is a policy.
type PlacementSpec struct {
	// Objects that the policy is for; an object is meant if one entry selects it.
	// Default: all placeable objects of the namespace. In a ClusterPlacement
	// cluster-scoped objects are meant only when an entry names their kind.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Objects []ObjectSelector `json:"objects,omitempty"`

	// Clusters where the objects run. Absent: nowhere.
	// +optional
	Clusters ClusterChoice `json:"clusters,omitempty"`

	// Replicas says how replicas are divided.
	// +optional
	Replicas ReplicaPolicy `json:"replicas,omitempty"`

	// Move says how objects go from cluster to cluster.
	// +optional
	Move MovePolicy `json:"move,omitempty"`

	// Offline says when an unreachable cluster counts as lost.
	// +optional
	Offline OfflinePolicy `json:"offline,omitempty"`

	// Status says what comes back to the hub.
	// +optional
	Status StatusPolicy `json:"status,omitempty"`

	// Apply says how objects are written in clusters.
	// +optional
	Apply ApplyPolicy `json:"apply,omitempty"`

	// OnDelete says what happens in the clusters when the object at the hub is deleted, or
	// a person orders its removal. Default: Delete; Orphan for PersistentVolumeClaims.
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`

	// OnUnselected says what happens in the clusters when this policy, which placed an
	// object, no longer selects it: by other labels of the object or its namespace, or by
	// other objects or namespaceSelector here. Deleting the policy never removes anything.
	// +optional
	// +kubebuilder:default=Keep
	OnUnselected OnUnselected `json:"onUnselected,omitempty"`

	// Volumes says what happens to volumes in a move. Only Refuse is served yet: an object
	// with PersistentVolumeClaims stays in the clusters that it is in.
	// +optional
	// +kubebuilder:default=Refuse
	Volumes VolumePolicy `json:"volumes,omitempty"`

	// Follow takes along the ConfigMaps, Secrets, ServiceAccounts,
	// PersistentVolumeClaims and Services that a workload needs. Default: true.
	// +optional
	Follow *bool `json:"follow,omitempty"`
}

// ClusterPlacementSpec is a policy for many namespaces.
type ClusterPlacementSpec struct {
	PlacementSpec `json:",inline"`

	// NamespaceSelector limits the policy to some namespaces; absent: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// ObjectSelector selects objects. All parts that are there must match.
type ObjectSelector struct {
	// Group of the kind; empty for the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// Kind of the objects; empty for all placeable kinds.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// Names of the objects; empty for all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Names []ObjectName `json:"names,omitempty"`

	// Selector of their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ObjectName is the name of an object at the hub.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
type ObjectName string

// ClusterChoice selects clusters. All parts that are there must match.
type ClusterChoice struct {
	// Names of clusters, in order of preference.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	Names []ClusterName `json:"names,omitempty"`

	// Selector of the Clusters' labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Count is how many of them to use; absent: all, or one in the mode Single.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	Count *int32 `json:"count,omitempty"`

	// Tolerations of the clusters' taints.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// Spread is a label of Clusters; as many of its values as possible are used when
	// Count leaves a choice.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Spread string `json:"spread,omitempty"`
}

// PolicyStatus says whether a policy can be used.
type PolicyStatus struct {
	// Conditions: Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// PlacementList is a list of Placements.
// +kubebuilder:object:root=true
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Placement `json:"items"`
}

// ClusterPlacementList is a list of ClusterPlacements.
// +kubebuilder:object:root=true
type ClusterPlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []ClusterPlacement `json:"items"`
}
