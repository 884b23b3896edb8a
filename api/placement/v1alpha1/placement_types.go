// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placement is a policy for the objects of its namespace: the clusters where they run. It takes precedence
// over every ClusterPlacement, and the annotation on an object over both.
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

	// Status of the policy.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// ClusterPlacement is a policy for objects of many namespaces and for cluster-scoped objects.
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

	// Status of the policy.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// PlacementSpec is a policy.
type PlacementSpec struct {
	// Objects that the policy applies to: those that an entry selects. Default: all placeable objects of
	// the namespace. A ClusterPlacement applies to cluster-scoped objects only when an entry names their
	// kind.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Objects []ObjectSelector `json:"objects,omitempty"`

	// Clusters where the objects run. Default: no cluster.
	// +optional
	Clusters ClusterChoice `json:"clusters,omitempty"`

	// Replicas is how clusters share the replicas.
	// +optional
	Replicas ReplicaPolicy `json:"replicas,omitempty"`

	// Move is how objects move from cluster to cluster.
	// +optional
	Move MovePolicy `json:"move,omitempty"`

	// Offline is when an unreachable cluster counts as lost.
	// +optional
	Offline OfflinePolicy `json:"offline,omitempty"`

	// Status is what clusters report to the hub.
	// +optional
	Status StatusPolicy `json:"status,omitempty"`

	// Apply is how agents apply objects in clusters.
	// +optional
	Apply ApplyPolicy `json:"apply,omitempty"`

	// OnDelete is what happens in the clusters when the object at the hub is deleted, or a user orders its
	// removal. Default: Delete; Orphan for PersistentVolumeClaims.
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`

	// OnUnselected is what happens in the clusters when this policy has placed an object and no longer
	// selects it, because labels of the object or its namespace, or objects or namespaceSelector of the
	// policy, have changed. Deletion of the policy never removes objects.
	// +optional
	// +kubebuilder:default=Keep
	OnUnselected OnUnselected `json:"onUnselected,omitempty"`

	// Volumes is what happens to volumes in a move. With Refuse an object with PersistentVolumeClaims stays in its
	// clusters. With Transfer the volumes of placed claims go with it, if both clusters share the storage.
	// +optional
	// +kubebuilder:default=Refuse
	Volumes VolumePolicy `json:"volumes,omitempty"`

	// Follow places the ConfigMaps, Secrets, ServiceAccounts, PersistentVolumeClaims and Services that a
	// workload needs with it. Default: true.
	// +optional
	Follow *bool `json:"follow,omitempty"`
}

// ClusterPlacementSpec is a policy for many namespaces.
type ClusterPlacementSpec struct {
	PlacementSpec `json:",inline"`

	// NamespaceSelector selects the namespaces of the policy. Default: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// ObjectSelector selects objects that match all its fields.
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

// ClusterChoice selects clusters that match all its fields.
type ClusterChoice struct {
	// Names of clusters, in order of preference.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	Names []ClusterName `json:"names,omitempty"`

	// Selector of the Clusters' labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Count is how many of these clusters to use. Default: all, or one in the mode Single.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	Count *int32 `json:"count,omitempty"`

	// Tolerations of the clusters' taints.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// Spread is a label key of Clusters. When Count leaves a choice, the hub chooses clusters with as many
	// values of this label as possible.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Spread string `json:"spread,omitempty"`
}

// PolicyStatus tells whether a policy is valid.
type PolicyStatus struct {
	// Conditions: Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that the conditions belong to.
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
