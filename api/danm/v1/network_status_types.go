// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkStatus is the observed state of a network. Only Patchbay writes it.
type NetworkStatus struct {
	// Conditions: Ready, and problems.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// IPAM is the network's address management. If it is absent, the addresses in use are
	// unknown, and the first writer builds it from the DanmEps.
	// +optional
	IPAM *IPAMStatus `json:"ipam,omitempty"`

	// Pools are the numbers of dynamic addresses, IPv4 first. The controller counts them when
	// the network is created. After a change they may be 15 s old, and 20 ms older for each node
	// that uses the network.
	// +optional
	// +listType=map
	// +listMapKey=family
	// +kubebuilder:validation:MaxItems=2
	Pools []PoolStatus `json:"pools,omitempty"`

	// ObservedGeneration is the generation of the network that Pools are about. Each condition has
	// its own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// PoolStatus counts the dynamic addresses of one family: those of the allocation pool that a Pod can
// get by asking for "dynamic". Capacity is the sum of InUse, Warm, Cooldown and Free. Each number
// saturates at 2^63-1.
type PoolStatus struct {
	// Family is IPv4 or IPv6.
	// +kubebuilder:validation:Enum=IPv4;IPv6
	Family string `json:"family"`

	// Capacity is how many dynamic addresses there are.
	Capacity int64 `json:"capacity"`

	// InUse is how many of them Pods have: those in DanmEps.
	InUse int64 `json:"inUse"`

	// Warm is how many of them nodes have for their next Pods: in warm pools, about to be a Pod's,
	// or in the cooldown after a Pod.
	Warm int64 `json:"warm"`

	// Cooldown is how many of them no Pod gets for a time: those in quarantine because another
	// machine uses them, and those that nothing covers until the controller has freed them.
	// Addresses in the cooldown after a Pod are in Warm.
	Cooldown int64 `json:"cooldown"`

	// Reserved is how many more addresses the allocation pool has, which are not dynamic: the
	// network and the broadcast address, gateways of routes, and the nodes' own.
	Reserved int64 `json:"reserved"`

	// Free is how many of them are left.
	Free int64 `json:"free"`
}

// +structType=atomic

// IPAMStatus has the bitmaps of a network and the nodes that have set their bits. It is
// atomic for server-side apply, so that managedFields does not list each page.
type IPAMStatus struct {
	// V4 is the bitmap of spec.Options.cidr.
	// +optional
	V4 *AddressBitmap `json:"v4,omitempty"`

	// V6 is the bitmap of spec.Options.net6.
	// +optional
	V6 *AddressBitmap `json:"v6,omitempty"`

	// Held has the addresses of each node, in use or pre-allocated, by the node's name.
	// +optional
	// +mapType=atomic
	Held map[string]HeldAddresses `json:"held,omitempty"`

	// ReclaimRequestTime is the last time at which a node found the pool exhausted while
	// other nodes had pre-allocated addresses. Those nodes then return addresses.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$`
	ReclaimRequestTime *metav1.MicroTime `json:"reclaimRequestTime,omitempty"`

	// Recovering is set after a node or the controller has detected that this object is
	// older than a state that it has seen. Claims wait until every node has reported its
	// live endpoints. Only the controller starts, restarts and ends a recovery.
	// +optional
	Recovering *RecoveryStatus `json:"recovering,omitempty"`

	// RecoveryDeferredUntil has the nodes that have reported too many rollbacks, with the
	// time until which their reports stop only their own claims and start no recovery.
	// +optional
	// +mapType=atomic
	RecoveryDeferredUntil map[string]metav1.MicroTime `json:"recoveryDeferredUntil,omitempty"`
}

// AddressBitmap is a sparse bitmap of one subnet.
type AddressBitmap struct {
	// CIDR is the subnet of the bits.
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr"`

	// Cursor is the address after the one that was allocated last (next-fit).
	// +optional
	// +kubebuilder:validation:MaxLength=45
	Cursor string `json:"cursor,omitempty"`

	// Allocated is the number of bits that are set in Pages. With another number, the bitmap is
	// damaged, and no address is allocated before the DanmEps were compared with it.
	// +optional
	Allocated int64 `json:"allocated,omitempty"`

	// Pages maps a decimal page index to 1,024 bits in standard base64: bit i,
	// least significant first, is the address base + index*1024 + i. A page
	// without a bit set is absent.
	// +optional
	// +mapType=atomic
	Pages map[string]string `json:"pages,omitempty"`
}

// HeldAddresses are the addresses of one network that one node has in use or pre-allocated.
// Each text has one canonical form: other nodes write the entry back from their Go types, and
// the API server rejects that as a change of another node's entry if it differs. The bounds
// prevent one node from filling the object, which would stop all claims: each range may need a
// page of a bitmap.
type HeldAddresses struct {
	// UID of the Node object.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`

	// Seq counts the incarnations of the node's daemon. Each incarnation raises it before it
	// first uses pre-allocated addresses of this network, so that delayed writes of earlier
	// incarnations fail.
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

	// Rollback is the node's report that the object is older than a state that the node has
	// seen. The node removes it when it reports to the recovery that follows.
	// +optional
	Rollback *RollbackReport `json:"rollback,omitempty"`

	// QuarantinedV4 are the addresses of V4 that other machines on the network use. No Pod
	// gets them for an hour.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[0-9.,-]+$`
	QuarantinedV4 string `json:"quarantinedV4,omitempty"`

	// QuarantinedV6 are the addresses of V6 that other machines on the network use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[0-9a-f:.,-]+$`
	QuarantinedV6 string `json:"quarantinedV6,omitempty"`
}

// RollbackReport requests a recovery from the controller. The node claims no address until then.
type RollbackReport struct {
	// Reason of the report.
	Reason RollbackReason `json:"reason"`

	// RecoveryStartTime is the start of the recovery in the older object, if any. That
	// recovery does not answer the report.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$`
	RecoveryStartTime *metav1.MicroTime `json:"recoveryStartTime,omitempty"`
}

// RollbackReason is the evidence by which a node detects that an object is older than before.
// +kubebuilder:validation:Enum=StatusMissing;OlderResourceVersion;DanmEpMissing;EntryChanged;OlderEntry
type RollbackReason string

// Reasons of a RollbackReport.
const (
	// RollbackStatusMissing: the network has its finalizer and no status.ipam.
	RollbackStatusMissing RollbackReason = "StatusMissing"
	// RollbackOlderResourceVersion: the resourceVersion is smaller than before.
	RollbackOlderResourceVersion RollbackReason = "OlderResourceVersion"
	// RollbackDanmEpMissing: a DanmEp of the node is missing, and the node has not removed it.
	RollbackDanmEpMissing RollbackReason = "DanmEpMissing"
	// RollbackEntryChanged: the node's entry differs from the node's last write.
	RollbackEntryChanged RollbackReason = "EntryChanged"
	// RollbackOlderEntry: the seq of the node's entry is smaller than in its journal.
	RollbackOlderEntry RollbackReason = "OlderEntry"
)

// RecoveryStatus is the state of a recovery, after the network's object was rolled back.
type RecoveryStatus struct {
	// StartTime is the time at which the controller started the recovery. It identifies it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$`
	StartTime metav1.MicroTime `json:"startTime"`

	// ReportedNodes are the nodes that have reported their live endpoints.
	// +optional
	// +listType=set
	ReportedNodes []string `json:"reportedNodes,omitempty"`
}
