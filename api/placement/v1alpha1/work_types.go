// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Work carries rendered manifests to one cluster, and their exact status back. The hub creates and deletes
// it and writes its spec; the cluster's agent writes its status. It is in the namespace cluster-<name> and
// has the name of its Assignment.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=`.spec.source.kind`
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.spec.source.namespace`
// +kubebuilder:printcolumn:name=Object,type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name=Revision,type=integer,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name=Applied,type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Work struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the cluster.
	Spec WorkSpec `json:"spec"`

	// Status is the observed state of the cluster.
	// +optional
	Status WorkStatus `json:"status,omitempty"`
}

// WorkSpec is the desired state of a cluster.
type WorkSpec struct {
	// HubUID is the UID of the hub's namespace kube-system.
	HubUID types.UID `json:"hubUID"`

	// Epoch of the hub, from the ConfigMap patchbay-hub-term: a random value that the hub creates at its
	// first start.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Epoch string `json:"epoch,omitempty"`

	// Term of the leader that wrote this spec. Each leader of a hub has a greater term than all before it,
	// also after the hub was restored from a backup.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Term int64 `json:"term,omitempty"`

	// Revision increases with each change of this spec, also when the Work is deleted and created again.
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// History has, for earlier terms, the last revision that the next leader knew. When an agent's record
	// has a term that is missing here, or a later revision, the hub was restored to an earlier state.
	// +optional
	// +listType=map
	// +listMapKey=term
	// +kubebuilder:validation:MaxItems=64
	History []WorkPosition `json:"history,omitempty"`

	// Source is the object at the hub.
	Source ObjectReference `json:"source"`

	// SourceGeneration is the generation of the source from which the manifests were rendered.
	// +optional
	SourceGeneration int64 `json:"sourceGeneration,omitempty"`

	// PodSecurity has the Pod Security levels of the source's namespace at the hub, by mode, from the labels
	// pod-security.kubernetes.io/<mode>. A namespace that the agent creates is at least as strict.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	PodSecurity map[string]PodSecurityLevel `json:"podSecurity,omitempty"`

	// Manifests in the order in which the agent applies them. The hub writes one manifest, that of the
	// source. The agent keeps objects whose manifests are no longer listed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Manifests []Manifest `json:"manifests"`

	// Apply is how the agent applies the manifests.
	// +optional
	Apply ApplyPolicy `json:"apply,omitempty"`

	// Associated is what the agent reports of objects that controllers create for them.
	// +optional
	Associated AssociatedMode `json:"associated,omitempty"`

	// OnDelete is the policy of a removal, for a hub that has lost the Assignment.
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`

	// Removal is the order to remove the objects of the manifests. The agent never removes an object
	// without an order.
	// +optional
	Removal *Removal `json:"removal,omitempty"`

	// MinReplicas is how many replicas the object needs while a move replaces those of an autoscaler, if
	// apply.yield has spec.replicas. The agent raises spec.replicas to it once for each revision, also where another
	// field manager owns the field, and leaves the field to the others from then on. If there is no other one, the
	// agent takes it back when a user has changed spec.replicas after the move.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// Volume is what the hub orders of the volume of a PersistentVolumeClaim.
	// +optional
	Volume *VolumeOrder `json:"volume,omitempty"`

	// Traffic is set for a Service on a stretched ClusterNetwork: then the agent reports the Service's ready
	// endpoints of this cluster, and writes EndpointSlices with those of other clusters.
	// +optional
	Traffic *WorkTraffic `json:"traffic,omitempty"`
}

// WorkTraffic is what a cluster's Service gets of other clusters.
type WorkTraffic struct {
	// Subnets of the stretched networks. The agent reports no address outside of them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=49
	Subnets []string `json:"subnets"`

	// Endpoints in other clusters: at most 500 addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Endpoints []TrafficEndpoints `json:"endpoints,omitempty"`

	// Withdrawn are workloads whose Pods are about to leave a cluster. Endpoints has none of their addresses
	// there.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Withdrawn []WithdrawnTraffic `json:"withdrawn,omitempty"`
}

// TrafficEndpoints are ready endpoints of one workload in one cluster, with the same ports.
type TrafficEndpoints struct {
	// Cluster that has the Pods; empty in a report, which is about the cluster itself.
	// +optional
	Cluster ClusterName `json:"cluster,omitempty"`

	// Work is the name of the Work of the object that runs the Pods.
	// +kubebuilder:validation:MaxLength=253
	Work string `json:"work"`

	// Addresses of the Pods, of one family, sorted.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses"`

	// Ports of the Pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Ports []TrafficPort `json:"ports,omitempty"`
}

// TrafficPort is a port of endpoints.
type TrafficPort struct {
	// Name of the Service's port.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// Protocol is TCP, UDP or SCTP.
	// +optional
	// +kubebuilder:validation:MaxLength=4
	Protocol string `json:"protocol,omitempty"`

	// Port number; absent for all ports.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// AppProtocol of the Service's port.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AppProtocol string `json:"appProtocol,omitempty"`
}

// WithdrawnTraffic is a workload whose Pods are about to leave a cluster.
type WithdrawnTraffic struct {
	// Cluster that the Pods are about to leave.
	Cluster ClusterName `json:"cluster"`

	// Work is the name of the workload's Work.
	// +kubebuilder:validation:MaxLength=253
	Work string `json:"work"`

	// Time is trafficWithdrawnTime of the workload's target: it identifies the withdrawal.
	Time metav1.MicroTime `json:"time"`
}

// Position identifies a state of a spec: "<hub UID>/<epoch>/<term>/<revision>".
func (s *WorkSpec) Position() string {
	return fmt.Sprintf("%s/%s/%d/%d", s.HubUID, s.Epoch, s.Term, s.Revision)
}

// ResumeAnswer returns the value of ResumeAnnotation: TakeHub or TakeCluster, and the positions of record
// and Work that the answer is about. The agent ignores the answer when one of the positions has changed.
func ResumeAnswer(take, record, work string) string {
	return take + ":" + record + ":" + work
}

// WorkPosition identifies a state of a Work's spec.
type WorkPosition struct {
	// Term of the leader that wrote it.
	Term int64 `json:"term"`

	// Revision of the spec.
	Revision int64 `json:"revision"`
}

// PodSecurityLevel is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurityLevel string

// Levels of the Pod Security Standards.
const (
	// PodSecurityPrivileged allows everything.
	PodSecurityPrivileged PodSecurityLevel = "privileged"
	// PodSecurityBaseline isolates Pods from the node: no host namespaces, host paths or privileges.
	PodSecurityBaseline PodSecurityLevel = "baseline"
	// PodSecurityRestricted also forbids root and capabilities.
	PodSecurityRestricted PodSecurityLevel = "restricted"
)

// Manifest is one object.
type Manifest struct {
	// Object to apply, without status.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	Object runtime.RawExtension `json:"object"`

	// Resource is the plural name of its kind in lower case.
	Resource string `json:"resource"`

	// Secret refers to the data of an object of the kind Secret, which the object here does not have.
	// +optional
	Secret *SecretData `json:"secret,omitempty"`
}

// SecretData refers to the data of a placed Secret, in the Secret at the hub with the namespace and the
// name of the Work.
type SecretData struct {
	// Version of the data, which that Secret has in the annotation placement.patchbay.io/data-version. It is
	// random and does not depend on the data.
	Version string `json:"version"`
}

// Removal is an order to remove objects.
type Removal struct {
	// Policy is Delete or Orphan.
	Policy OnDelete `json:"policy"`

	// SourceUID must be the UID of the source in the agent's record. The agent rejects an order for an
	// object that was deleted and created again.
	SourceUID types.UID `json:"sourceUID"`

	// UIDs of the objects in the cluster, in the order of the manifests, from the Work's status at the time
	// of the order; empty for an object that was not reported. An agent that has lost its record identifies
	// the objects by them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	UIDs []types.UID `json:"uids,omitempty"`
}

// WorkStatus is the observed state of a cluster.
type WorkStatus struct {
	// Conditions: Applied, Ready. Applied is False with the reason Removed when the agent has carried out an
	// order for removal: then the hub deletes the Work. It is False with the reason HubMismatch while Halted
	// is set.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Term of the spec that the agent carried out last.
	// +optional
	Term int64 `json:"term,omitempty"`

	// Revision of the spec that the agent carried out last.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Halted is why the agent does not carry out the spec.
	// +optional
	Halted *HaltedWork `json:"halted,omitempty"`

	// Manifests has an entry for each manifest, in the order of the spec.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Manifests []ManifestStatus `json:"manifests,omitempty"`

	// Traffic is the state of spec.traffic. It is absent until the agent has carried out spec.traffic once.
	// +optional
	Traffic *WorkTrafficStatus `json:"traffic,omitempty"`
}

// WorkTrafficStatus is what the agent reports of a Service on a stretched ClusterNetwork.
type WorkTrafficStatus struct {
	// Revision of the spec whose endpoints the EndpointSlices of the cluster have: the hub's acknowledgment that
	// the cluster sends nothing to those that are withdrawn.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Endpoints of this cluster that are ready: at most 500 addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Endpoints []TrafficEndpoints `json:"endpoints,omitempty"`

	// Truncated is true when there are more endpoints.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// Message is why the EndpointSlices are not as the spec requests.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// HaltedWork is the difference between a Work and its cluster's record.
type HaltedWork struct {
	// Record is the state of the record, for the annotation placement.patchbay.io/resume:
	// "<hub UID>/<epoch>/<term>/<revision>". Empty when the cluster has no record: then the Work waits until
	// no other Work of the cluster is halted.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Record string `json:"record,omitempty"`

	// Work is the state of the Work that the agent compared with the record. Empty when the cluster has no
	// record.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Work string `json:"work,omitempty"`

	// Differences are at most 20 fields that the Work would change in the cluster, such as
	// "Deployment shop/web: spec.replicas: 3 in the cluster, 2 at the hub".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Differences []string `json:"differences,omitempty"`
}

// ManifestStatus is the observed state of one manifest's object.
type ManifestStatus struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// UID of the object in the cluster, also of one that was deleted there; empty when the agent has created
	// none.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// Generation of the object in the cluster, read together with Status.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// AppliedGeneration is the object's generation in the cluster after the agent applied SourceGeneration
	// there. A status with at least this observedGeneration belongs to SourceGeneration.
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`

	// SourceGeneration is the generation of the source that the agent applied last.
	// +optional
	SourceGeneration int64 `json:"sourceGeneration,omitempty"`

	// Replicas is the object's spec.replicas in the cluster. Another field manager may have set it.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// VolumeClaims are the existing PersistentVolumeClaims, as namespace/name, that Pods of the object use
	// or have used. Their creator may delete them with the object.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	VolumeClaims []string `json:"volumeClaims,omitempty"`

	// Truncated is true when Status has only conditions and counts, because it would be larger than 64 KiB,
	// or the Work larger than 256 KiB.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// Status is the exact status of the object.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Status *runtime.RawExtension `json:"status,omitempty"`

	// Ready is true when the object is ready, as kstatus computes it.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// Conditions: Applied, with the reason Conflict, Refused or that of the API server, and a message with
	// object and field.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Associated objects.
	// +optional
	Associated *Associated `json:"associated,omitempty"`

	// AutoscaledReplicas is the object's spec.replicas in the cluster if apply.yield leaves the field to another
	// field manager that owns it, such as an autoscaler.
	// +optional
	AutoscaledReplicas *int32 `json:"autoscaledReplicas,omitempty"`

	// RefusedReplicas of a Deployment or a ReplicaSet have not run for a while, because the cluster can neither
	// schedule nor create their Pods; absent if there are none.
	// +optional
	RefusedReplicas *RefusedReplicas `json:"refusedReplicas,omitempty"`

	// Volume of a PersistentVolumeClaim, if the hub orders something of it.
	// +optional
	Volume *VolumeReport `json:"volume,omitempty"`
}

// RefusedReplicas are replicas that a cluster does not run. The agent's flag --refused-after has the time after
// which it reports them.
type RefusedReplicas struct {
	// Replicas is their number.
	// +kubebuilder:validation:Minimum=1
	Replicas int32 `json:"replicas"`

	// Reason is Unschedulable, or FailedCreate if a quota or an admission webhook refuses the Pods.
	Reason string `json:"reason"`

	// Message of the scheduler or the API server, at most 256 bytes.
	// +optional
	Message string `json:"message,omitempty"`
}

// WorkList is a list of Works.
// +kubebuilder:object:root=true
type WorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Work `json:"items"`
}
