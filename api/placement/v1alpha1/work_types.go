// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Work carries rendered manifests to one cluster, and their exact status back. The
// hub writes its spec and creates and deletes it; the cluster's agent writes its
// status. It stands in cluster-<name> and bears its Assignment's name.
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

	// Spec is what the cluster is to have.
	Spec WorkSpec `json:"spec"`

	// Status is what it has.
	// +optional
	Status WorkStatus `json:"status,omitempty"`
}

// WorkSpec is what the cluster is to have.
type WorkSpec struct {
	// HubUID is the UID of the hub's namespace kube-system.
	HubUID types.UID `json:"hubUID"`

	// Epoch is the hub's, from its ConfigMap TermConfigMap: random, made when the hub first
	// ran there.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Epoch string `json:"epoch,omitempty"`

	// Term of the leader that wrote this spec. Each leader of a hub has a greater one than
	// all before it, also when the hub was restored from a backup.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Term int64 `json:"term,omitempty"`

	// Revision grows with each change of this spec, also over deletion and new
	// creation of the Work.
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// History has, for earlier terms, the last revision that the next leader knew of. An
	// agent whose record is of a term that is missing here, or of a later revision, knows
	// that this hub went back in time.
	// +optional
	// +listType=map
	// +listMapKey=term
	// +kubebuilder:validation:MaxItems=64
	History []WorkPosition `json:"history,omitempty"`

	// Source is the object at the hub.
	Source ObjectReference `json:"source"`

	// SourceGeneration is the generation of the source that the manifests were
	// rendered from.
	// +optional
	SourceGeneration int64 `json:"sourceGeneration,omitempty"`

	// PodSecurity has the Pod Security levels of the source's namespace at the hub: those
	// of the labels pod-security.kubernetes.io/<mode>, by mode. A namespace that the agent
	// makes is at least as strict.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	PodSecurity map[string]PodSecurityLevel `json:"podSecurity,omitempty"`

	// Manifests in order of execution. The hub writes one, of the source itself.
	// One that is no longer listed is kept in the cluster and reported as orphaned.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Manifests []Manifest `json:"manifests"`

	// Apply says how they are written.
	// +optional
	Apply ApplyPolicy `json:"apply,omitempty"`

	// Associated says what comes back of objects that controllers make for them.
	// +optional
	Associated AssociatedMode `json:"associated,omitempty"`

	// OnDelete is what a removal would do, for a hub that has lost the Assignment.
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`

	// Removal, when it is there, is the order to remove the manifests' objects.
	// Nothing else removes any.
	// +optional
	Removal *Removal `json:"removal,omitempty"`
}

// Position names a state of a spec: "<hub UID>/<epoch>/<term>/<revision>".
func (s *WorkSpec) Position() string {
	return fmt.Sprintf("%s/%s/%d/%d", s.HubUID, s.Epoch, s.Term, s.Revision)
}

// ResumeAnswer is the value of ResumeAnnotation: TakeHub or TakeCluster, and the positions of the
// record and of the Work that the answer is about. It is no answer once one of them is another.
func ResumeAnswer(take, record, work string) string {
	return take + ":" + record + ":" + work
}

// WorkPosition is a state of a Work's spec.
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
	// PodSecurityBaseline keeps Pods from the node: no host namespaces, paths or privileges.
	PodSecurityBaseline PodSecurityLevel = "baseline"
	// PodSecurityRestricted is hardened besides: no root, no capabilities.
	PodSecurityRestricted PodSecurityLevel = "restricted"
)

// Manifest is one object.
type Manifest struct {
	// Object as it is to be applied, without status.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	Object runtime.RawExtension `json:"object"`

	// Resource is the plural of its kind in lower case.
	Resource string `json:"resource"`

	// Secret says where the data of an object of the kind Secret are, which the object here
	// does not have.
	// +optional
	Secret *SecretData `json:"secret,omitempty"`
}

// SecretData is the data of a Secret: those of the Secret beside the Work, with its name.
type SecretData struct {
	// Version of the data, which that Secret has in the annotation
	// placement.patchbay.io/data-version. It is random and says nothing of them.
	Version string `json:"version"`
}

// Removal is an order to remove objects.
type Removal struct {
	// Policy is Delete or Orphan.
	Policy OnDelete `json:"policy"`

	// SourceUID must be the UID of the source that the agent has recorded for what it
	// made: an order for another life of the object is refused.
	SourceUID types.UID `json:"sourceUID"`

	// UIDs of the objects in the cluster, in the order of the manifests, as the Work's status
	// had them when the order was given; empty for one that was not reported. An agent that
	// has lost its record removes by them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	UIDs []types.UID `json:"uids,omitempty"`
}

// WorkStatus is what the cluster has.
type WorkStatus struct {
	// Conditions: Applied, Ready. Applied is False with the reason Removed when an
	// order for removal is carried out: then the hub deletes the Work. It is False with the
	// reason HubMismatch while Halted is there.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Term of the spec that the agent has last carried out.
	// +optional
	Term int64 `json:"term,omitempty"`

	// Revision of the spec that the agent has last carried out.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Halted says why the agent does not carry out the spec.
	// +optional
	Halted *HaltedWork `json:"halted,omitempty"`

	// Manifests have an entry each, in the order of the spec.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Manifests []ManifestStatus `json:"manifests,omitempty"`
}

// HaltedWork says how a Work and its cluster's record differ.
type HaltedWork struct {
	// Record names the state of the record, for ResumeAnnotation:
	// "<hub UID>/<epoch>/<term>/<revision>". Empty when the cluster has no record: the Work
	// waits until no other Work of the cluster is halted.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Record string `json:"record,omitempty"`

	// Work names the state of the Work that the agent has compared with the record. Empty when
	// the cluster has no record.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Work string `json:"work,omitempty"`

	// Differences are fields that the Work would change in the cluster, at most 20, such as
	// "Deployment shop/web: spec.replicas: 3 in the cluster, 2 at the hub".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Differences []string `json:"differences,omitempty"`
}

// ManifestStatus is what the cluster has of one manifest.
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

	// UID of the object in the cluster, also of one that the cluster has lost; empty when there is none of ours.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// Generation of the object in the cluster, read together with Status.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// AppliedGeneration is the object's generation in the cluster right after the
	// agent last applied SourceGeneration there: a status whose observedGeneration is
	// not smaller speaks of SourceGeneration.
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`

	// SourceGeneration is the generation of the source that was last applied.
	// +optional
	SourceGeneration int64 `json:"sourceGeneration,omitempty"`

	// Replicas is the object's spec.replicas in the cluster, whoever set it.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// VolumeClaims are PersistentVolumeClaims, as namespace/name, that Pods of the object use or
	// have used, and that are still there. Whoever made them may delete them with the object.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	VolumeClaims []string `json:"volumeClaims,omitempty"`

	// Truncated says that Status has only conditions and counts: the whole would be larger
	// than MaxStatusBytes.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// Status of the object, exactly.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Status *runtime.RawExtension `json:"status,omitempty"`

	// Ready says that the object is ready, as kstatus computes it.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// Conditions: Applied, with the reason Conflict, Refused or the API server's, and a
	// message that names object and field.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Associated objects.
	// +optional
	Associated *Associated `json:"associated,omitempty"`
}

// WorkList is a list of Works.
// +kubebuilder:object:root=true
type WorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Work `json:"items"`
}
