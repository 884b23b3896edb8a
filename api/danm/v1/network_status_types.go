// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkStatus is what Patchbay knows of a network. Nobody else writes it.
type NetworkStatus struct {
	// Conditions: Ready, and what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// IPAM is the network's address management; absent means unknown, not
	// empty: its first writer builds it from the DanmEps.
	// +optional
	IPAM *IPAMStatus `json:"ipam,omitempty"`

	// Allocated is the number of addresses in use or held, of both families.
	// +optional
	Allocated int64 `json:"allocated,omitempty"`

	// Capacity is the number of dynamic addresses of both families; it
	// saturates at 2^63-1.
	// +optional
	Capacity int64 `json:"capacity,omitempty"`

	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// +structType=atomic

// IPAMStatus holds the bitmaps of a network and who covers their bits. It is
// atomic for server-side apply, so that managedFields does not list each page.
type IPAMStatus struct {
	// V4 is the bitmap of spec.Options.cidr.
	// +optional
	V4 *AddressBitmap `json:"v4,omitempty"`

	// V6 is the bitmap of spec.Options.net6.
	// +optional
	V6 *AddressBitmap `json:"v6,omitempty"`

	// Held names, for each node, the addresses that this node covers.
	// +optional
	// +mapType=atomic
	Held map[string]HeldAddresses `json:"held,omitempty"`

	// ReclaimRequestTime is when a node last found the pool exhausted while others hold
	// addresses; holders give back.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$`
	ReclaimRequestTime *metav1.MicroTime `json:"reclaimRequestTime,omitempty"`

	// Recovering says that this object is older than what a node or the controller
	// knows: claims wait until every node has re-asserted its live endpoints. Only the
	// controller starts, restarts and ends it.
	// +optional
	Recovering *RecoveryStatus `json:"recovering,omitempty"`

	// RecoveryDeferredUntil names the nodes that have reported too many rollbacks lately, and until
	// when: their reports stop only their own claims, and start no recovery.
	// +optional
	// +mapType=atomic
	RecoveryDeferredUntil map[string]metav1.MicroTime `json:"recoveryDeferredUntil,omitempty"`
}

// AddressBitmap is a sparse bitmap of one subnet.
type AddressBitmap struct {
	// CIDR is the subnet that the bits were written for.
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr"`

	// Cursor is the address after the one handed out last (next-fit).
	// +optional
	// +kubebuilder:validation:MaxLength=45
	Cursor string `json:"cursor,omitempty"`

	// Pages maps a decimal page index to 1,024 bits in standard base64: bit i,
	// least significant first, is the address base + index*1024 + i. A page
	// without a bit set is absent.
	// +optional
	// +mapType=atomic
	Pages map[string]string `json:"pages,omitempty"`
}

// HeldAddresses are the addresses of one network that one node covers. There is one way
// to write each: others write the entry back as their Go types have it, and the API server
// refuses that as another's change if it is not the same. The bounds keep one node from
// filling the object, which would stop all claims: each range may take a page of a bitmap.
type HeldAddresses struct {
	// UID of the Node object.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`

	// Seq counts the lives of the node's daemon: it is raised before a hold of
	// this network is first used, so delayed writes of a former life fail.
	Seq int64 `json:"seq"`

	// V4 are ranges such as "10.0.0.5-10.0.0.9,10.0.0.12".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:Pattern=`^[0-9.,-]+$`
	V4 string `json:"v4,omitempty"`

	// V6 are ranges such as "fd00::5-fd00::9".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:Pattern=`^[0-9a-f:.,-]+$`
	V6 string `json:"v6,omitempty"`

	// Rollback is the node's report that the object is older than it has been. The node
	// takes it off when it reports to the recovery that follows.
	// +optional
	Rollback *RollbackReport `json:"rollback,omitempty"`

	// QuarantinedV4 are those of V4 that the node found in use by others on the
	// network; no Pod gets them for an hour.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[0-9.,-]+$`
	QuarantinedV4 string `json:"quarantinedV4,omitempty"`

	// QuarantinedV6 are those of V6.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[0-9a-f:.,-]+$`
	QuarantinedV6 string `json:"quarantinedV6,omitempty"`
}

// RollbackReport asks the controller for a recovery. Until then nothing is claimed.
type RollbackReport struct {
	// Reason is how the node has noticed.
	Reason RollbackReason `json:"reason"`

	// RecoveryStartTime is the start of the recovery that the older object was in, if any: this
	// one does not answer the report.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$`
	RecoveryStartTime *metav1.MicroTime `json:"recoveryStartTime,omitempty"`
}

// RollbackReason is how a node notices that an object is older than it has been.
// +kubebuilder:validation:Enum=StatusMissing;OlderResourceVersion;DanmEpMissing;EntryChanged;OlderEntry
type RollbackReason string

// How nodes notice.
const (
	// RollbackStatusMissing: the network has its finalizer, and no status.ipam.
	RollbackStatusMissing RollbackReason = "StatusMissing"
	// RollbackOlderResourceVersion: the resourceVersion is smaller than it was.
	RollbackOlderResourceVersion RollbackReason = "OlderResourceVersion"
	// RollbackDanmEpMissing: a DanmEp of the node is gone that it has not removed.
	RollbackDanmEpMissing RollbackReason = "DanmEpMissing"
	// RollbackEntryChanged: the node's entry is not what it wrote last.
	RollbackEntryChanged RollbackReason = "EntryChanged"
	// RollbackOlderEntry: the seq of the node's entry is smaller than in its journal.
	RollbackOlderEntry RollbackReason = "OlderEntry"
)

// RecoveryStatus is the state of a network after its object went back in time.
type RecoveryStatus struct {
	// StartTime is when the controller started it; it tells it from any other.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$`
	StartTime metav1.MicroTime `json:"startTime"`

	// ReportedNodes are the nodes that have re-asserted their live endpoints.
	// +optional
	// +listType=set
	ReportedNodes []string `json:"reportedNodes,omitempty"`
}
