// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// VolumeSource identifies the data of a PersistentVolumeClaim: a volume of a CSI driver. Only an agent reports it,
// and the hub passes it on to another cluster of the same storage domain.
type VolumeSource struct {
	// Driver is the name of the CSI driver.
	// +kubebuilder:validation:MaxLength=253
	Driver string `json:"driver"`

	// Handle identifies the volume for the driver.
	// +kubebuilder:validation:MaxLength=1024
	Handle string `json:"handle"`

	// FSType is the file system of the volume.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	FSType string `json:"fsType,omitempty"`

	// ReadOnly volumes are mounted without write access.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// Attributes are the driver's own facts about the volume.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	Attributes map[string]string `json:"attributes,omitempty"`

	// AccessModes of the volume, such as ReadWriteOnce.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	AccessModes []string `json:"accessModes,omitempty"`

	// VolumeMode is Filesystem or Block.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	VolumeMode string `json:"volumeMode,omitempty"`

	// Capacity of the volume.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`

	// StorageClass of the volume.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`
}

// VolumeAction is the state of a claim's volume that the hub orders in one cluster.
// +kubebuilder:validation:Enum=Keep;Retain;Fence;Bind;Discard
type VolumeAction string

// Actions.
const (
	// VolumeKeep: the claim uses its volume. The agent takes back a fence that it has set, and reports the volume.
	VolumeKeep VolumeAction = "Keep"
	// VolumeRetain is Keep; the PersistentVolume has the reclaim policy Retain.
	VolumeRetain VolumeAction = "Retain"
	// VolumeFence: no new Pod can use the claim. The PersistentVolume has the reclaim policy Retain and belongs to
	// no claim of the cluster. The agent reports when no Pod and no VolumeAttachment uses the volume.
	VolumeFence VolumeAction = "Fence"
	// VolumeBind: the claim is bound to a PersistentVolume with Source, which the agent creates before the claim.
	VolumeBind VolumeAction = "Bind"
	// VolumeDiscard: the cluster no longer knows the volume. The agent sets the fence and, when nothing uses the
	// volume, deletes the PersistentVolume object. The data stays.
	VolumeDiscard VolumeAction = "Discard"
)

// VolumeOrder is what the hub orders of the volume of a Work's claim.
type VolumeOrder struct {
	// Action is the state that the volume is to have.
	Action VolumeAction `json:"action"`

	// Source of the volume: with Bind what the PersistentVolume gets, with Fence and Discard what it must have.
	// +optional
	Source *VolumeSource `json:"source,omitempty"`
}

// VolumeReport is what an agent reports of the volume of a claim.
type VolumeReport struct {
	// Source of the volume that the claim is bound to.
	// +optional
	Source *VolumeSource `json:"source,omitempty"`

	// Action that the agent has carried out.
	// +optional
	Action VolumeAction `json:"action,omitempty"`

	// Unmovable is why the volume can not be used in another cluster; empty when it can.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Unmovable string `json:"unmovable,omitempty"`

	// Waiting is what the action waits for, such as a Pod that uses the claim.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Waiting string `json:"waiting,omitempty"`
}

// VolumeState is the state of a claim's volume on its way to another cluster.
// +kubebuilder:validation:Enum=Scaling;Detaching;Released;Binding;Bound;Discarding;Removing;Withdrawing;Undoing;Returning
type VolumeState string

// States of a volume.
const (
	// VolumeScaling: the objects that use the claim leave its cluster.
	VolumeScaling VolumeState = "Scaling"
	// VolumeDetaching: the cluster fences the volume, and detaches it from its nodes.
	VolumeDetaching VolumeState = "Detaching"
	// VolumeReleased: the cluster has reported that nothing uses the volume, and that nothing can.
	VolumeReleased VolumeState = "Released"
	// VolumeBinding: the other cluster creates PersistentVolume and claim.
	VolumeBinding VolumeState = "Binding"
	// VolumeBound: the other cluster has reported that its claim is bound to the volume.
	VolumeBound VolumeState = "Bound"
	// VolumeDiscarding: the first cluster deletes its PersistentVolume object.
	VolumeDiscarding VolumeState = "Discarding"
	// VolumeRemoving: the first cluster deletes its claim.
	VolumeRemoving VolumeState = "Removing"
	// VolumeWithdrawing: the move was taken back, and the other cluster deletes its PersistentVolume object.
	VolumeWithdrawing VolumeState = "Withdrawing"
	// VolumeUndoing: the move was taken back, and the other cluster deletes its claim.
	VolumeUndoing VolumeState = "Undoing"
	// VolumeReturning: the move was taken back, and the first cluster takes its fence back.
	VolumeReturning VolumeState = "Returning"
)

// VolumeTransfer is where the volume of a claim is on its way to another cluster.
type VolumeTransfer struct {
	// ClaimUID is the UID of the claim at the hub.
	ClaimUID types.UID `json:"claimUID"`

	// Source of the volume, as the agent of From reported it.
	Source VolumeSource `json:"source"`

	// From is the cluster that the volume leaves; empty after the transfer.
	// +optional
	From ClusterName `json:"from,omitempty"`

	// To is the cluster that gets the volume.
	To ClusterName `json:"to"`

	// State of the transfer.
	State VolumeState `json:"state"`
}

// IsShared reports whether several clusters may attach the volume at a time.
func (s *VolumeSource) IsShared() bool {
	return len(s.AccessModes) > 0 && !slices.ContainsFunc(s.AccessModes, func(mode string) bool {
		return mode != string(corev1.ReadWriteMany) && mode != string(corev1.ReadOnlyMany)
	})
}

// VolumeName returns the name of the PersistentVolume that an agent makes for a claim of the hub.
func VolumeName(claim types.UID, source *VolumeSource) string {
	sum := sha256.Sum256([]byte(string(claim) + "\x00" + source.Driver + "\x00" + source.Handle))
	return "patchbay-" + hex.EncodeToString(sum[:12])
}
