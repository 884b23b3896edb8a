// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is a workload cluster. Infrastructure admins write its spec; Patchbay's programs never do.
// +kubebuilder:validation:XValidation:rule=`!has(self.spec) || !has(self.spec.declaredLost) || has(self.status)`,message=`spec.declaredLost: must be absent in a new Cluster: only one that has reported can be lost`
// +kubebuilder:validation:XValidation:rule=`!has(self.spec) || !has(self.spec.declaredLost) || has(oldSelf.spec) && has(oldSelf.spec.declaredLost) && oldSelf.spec.declaredLost == self.spec.declaredLost || has(self.status) && has(self.status.lastHeartbeat) && self.status.lastHeartbeat == self.spec.declaredLost.lastHeartbeat`,message=`spec.declaredLost.lastHeartbeat: must be status.lastHeartbeat, which a cluster that reports does not have`
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Accepted,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name=Reachable,type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name=Drain,type=string,JSONPath=`.spec.drain.mode`
// +kubebuilder:printcolumn:name=Objects,type=integer,JSONPath=`.status.assigned.objects`
// +kubebuilder:printcolumn:name=Replicas,type=integer,JSONPath=`.status.assigned.replicas`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.versions.kubernetes`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what may run in the cluster.
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`

	// Status is what the agent and the hub report of the cluster.
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterName is the name of a Cluster. It is part of the name of the namespace cluster-<name>.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=55
type ClusterName string

// ClusterSpec is what may run in a cluster.
type ClusterSpec struct {
	// Accepted allows the cluster's agent to join: the hub approves its certificate only then.
	// +optional
	Accepted bool `json:"accepted,omitempty"`

	// Unschedulable keeps new objects away from the cluster; objects in the cluster stay.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`

	// Taints keep objects away whose policies do not tolerate them.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=32
	Taints []Taint `json:"taints,omitempty"`

	// Drain moves the objects of the cluster to other clusters.
	// +optional
	Drain *Drain `json:"drain,omitempty"`

	// Limits bound what all objects together may request of the cluster.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// Properties are facts that Customizations can use, as cluster.properties.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Properties map[string]PropertyValue `json:"properties,omitempty"`

	// DeclaredLost is a statement of an admin that the objects of the silent cluster do not run any more, and do not start again by
	// themselves: other clusters then run also what must run in one cluster at a time. Set it with kubectl patchbay
	// cluster declare-lost.
	// +optional
	DeclaredLost *DeclaredLost `json:"declaredLost,omitempty"`
}

// DeclaredLost is an admin's word that a silent cluster runs nothing. It ends with the next heartbeat.
type DeclaredLost struct {
	// LastHeartbeat must be status.lastHeartbeat: the cluster is lost as long as that is its last one.
	LastHeartbeat metav1.MicroTime `json:"lastHeartbeat"`
}

// TaintEffect is the effect of a taint on objects whose policies do not tolerate it.
// +kubebuilder:validation:Enum=NoSchedule;NoExecute
type TaintEffect string

// Effects of a taint, with the meaning that they have on Nodes.
const (
	// TaintNoSchedule keeps new objects away.
	TaintNoSchedule TaintEffect = "NoSchedule"
	// TaintNoExecute also moves the objects of the cluster away.
	TaintNoExecute TaintEffect = "NoExecute"
)

// Taint keeps objects away from a cluster.
type Taint struct {
	// Key of the taint.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// Value of the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`

	// Effect on objects whose policies do not tolerate the taint.
	Effect TaintEffect `json:"effect"`
}

// Toleration matches taints. An empty field matches all values of that field.
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

// DrainMode is what a drain does.
// +kubebuilder:validation:Enum=Off;Move
type DrainMode string

// Modes of a drain.
const (
	// DrainOff drains nothing.
	DrainOff DrainMode = "Off"
	// DrainMove moves all objects for which other clusters have room.
	DrainMove DrainMode = "Move"
)

// Drain moves a cluster's objects to other clusters.
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

	// Deadline after which the condition Drained names the objects that could not move.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// OnDeadline is what happens at the deadline. Hold only names what is left. Proceed also lets moves out of
	// this cluster remove replicas whose replacement is not available. Objects that no other cluster has room
	// for, that have volume claims, or that run once stay.
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
}

// Limits are upper bounds. A resource without a bound is unlimited.
type Limits struct {
	// CPU is the sum of what the Pods of all placed objects may request.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$') : type(self) == int && self >= 0`,message=`must be a quantity from 0, such as "16" or "500m"`
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// Memory is the sum of what the Pods of all placed objects may request.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$') : type(self) == int && self >= 0`,message=`must be a quantity from 0, such as "64Gi"`
	Memory *resource.Quantity `json:"memory,omitempty"`

	// Pods is the number of Pods of all placed objects.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pods *int32 `json:"pods,omitempty"`

	// Replicas is the number of replicas of each object.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
}

// PropertyValue is a fact about a cluster.
// +kubebuilder:validation:MaxLength=1024
type PropertyValue string

// ClusterStatus is the observed state of a cluster. The agent applies allocatable, requested, versions, hubUID,
// room and the condition HubMismatch; the hub applies the other fields.
type ClusterStatus struct {
	// Conditions: Accepted, Reachable, Drained, HubMismatch, DeclaredLost.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Allocatable is the sum over the cluster's ready, schedulable nodes.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// Requested is the sum of the requests of all Pods in the cluster, also of those that the hub did not
	// place.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`

	// Assigned is what the hub has placed in the cluster.
	// +optional
	Assigned *Assigned `json:"assigned,omitempty"`

	// Drain is the progress of the drain; absent while the cluster is not drained.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`

	// Versions of the programs in the cluster.
	// +optional
	Versions *Versions `json:"versions,omitempty"`

	// HubUID is the UID of the hub that the agent reports to: that of the hub's namespace kube-system.
	// +optional
	HubUID string `json:"hubUID,omitempty"`

	// Room is what the cluster's nodes have free. The hub requests no more new replicas than fit in it. Absent
	// when the agent does not report it: then the hub does not know the room, and does not limit replicas by it.
	// +optional
	Room *Room `json:"room,omitempty"`

	// LastHeartbeat is when a cluster that does not report last did, by its own clock; absent while it reports.
	// +optional
	LastHeartbeat *metav1.MicroTime `json:"lastHeartbeat,omitempty"`
}

// Room is a histogram of what the ready, schedulable nodes without a taint NoSchedule or NoExecute have free:
// allocatable resources, less the requests of Pods. The agent reports it when it changes by 10 percent, and
// smaller changes within a minute.
type Room struct {
	// Buckets are groups of similar nodes; empty if no node is ready.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Buckets []RoomBucket `json:"buckets,omitempty"`
}

// RoomBucket is a group of nodes. Each of them has at least this much free.
type RoomBucket struct {
	// Nodes is the number of nodes.
	// +kubebuilder:validation:Minimum=1
	Nodes int32 `json:"nodes"`

	// CPU that each node has free.
	CPU resource.Quantity `json:"cpu"`

	// Memory that each node has free.
	Memory resource.Quantity `json:"memory"`

	// Pods that each node may run in addition.
	// +kubebuilder:validation:Minimum=0
	Pods int64 `json:"pods"`
}

// Assigned is the sum of what the hub has placed in one cluster.
type Assigned struct {
	// Objects is the number of objects with this cluster as target.
	Objects int32 `json:"objects"`

	// Replicas of those objects in the cluster.
	Replicas int32 `json:"replicas"`

	// Requests of the Pods of those replicas.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// DrainStatus is the progress of a drain. Left is the sum of Moving, Waiting, Blocked and Staying.
type DrainStatus struct {
	// StartTime is when the hub began the drain.
	StartTime metav1.Time `json:"startTime"`

	// Total is the largest number of objects that were left at a time.
	Total int32 `json:"total"`

	// Left is the number of objects that the cluster still has.
	Left int32 `json:"left"`

	// Moving objects leave the cluster now.
	Moving int32 `json:"moving"`

	// Waiting objects leave when others have left: see spec.drain.maxConcurrentMoves.
	Waiting int32 `json:"waiting"`

	// Blocked objects cannot leave until a user changes something.
	Blocked int32 `json:"blocked"`

	// Staying objects do not leave: their policy allows no other cluster, they have a volume claim, or they run
	// once and have started.
	Staying int32 `json:"staying"`

	// Blockers are the first 10 blocked objects by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Blockers []DrainBlocker `json:"blockers,omitempty"`

	// Stays are the first 10 staying objects by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Stays []DrainBlocker `json:"stays,omitempty"`
}

// DrainBlocker is an object that a drain does not move.
type DrainBlocker struct {
	// Object is its kind, namespace and name, such as "Deployment shop/web".
	Object string `json:"object"`

	// Reason why the object is still in the cluster, such as Unschedulable.
	Reason string `json:"reason"`

	// Message describes the reason, in at most 256 bytes.
	// +optional
	Message string `json:"message,omitempty"`
}

// Versions of the programs in a cluster.
type Versions struct {
	// Kubernetes is the API server's version.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`

	// Agent is patchbay-agent's version.
	// +optional
	Agent string `json:"agent,omitempty"`
}

// ClusterList is a list of Clusters.
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Cluster `json:"items"`
}
