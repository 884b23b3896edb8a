// SPDX-License-Identifier: Apache-2.0

package v1

// NetworkSpec describes a network. One struct serves the three network kinds.
// +kubebuilder:validation:XValidation:rule=`!has(self.NetworkType) || self.NetworkType.lowerAscii() != 'sriov' || (has(self.Options) && has(self.Options.device_pool) && self.Options.device_pool != "")`,fieldPath=`.Options.device_pool`,reason=FieldValueRequired,message=`NetworkType sriov draws virtual functions from a device plugin: name its resource, such as "example.com/sriov_ens4"`
// +kubebuilder:validation:XValidation:rule=`!has(self.NetworkType) || self.NetworkType.lowerAscii() != 'sriov' || !has(self.Options) || !has(self.Options.host_device) || self.Options.host_device == ""`,fieldPath=`.Options.host_device`,reason=FieldValueForbidden,message=`NetworkType sriov takes its devices from device_pool: leave host_device out`,messageExpression=`'NetworkType sriov takes its devices from device_pool: leave host_device "' + self.Options.host_device + '" out'`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !(has(self.Options.vlan) || has(self.Options.vxlan)) || (has(self.NetworkType) && self.NetworkType.lowerAscii() == 'sriov') || size(self.NetworkID) <= 10`,fieldPath=`.NetworkID`,message=`a VLAN or VXLAN link bears the NetworkID in its name of at most 15 bytes: use at most 10 characters`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.trunk) || !self.Options.trunk || (has(self.Options.host_device) && self.Options.host_device != "" && (!has(self.NetworkType) || self.NetworkType == "" || self.NetworkType.lowerAscii() in ['ipvlan', 'macvlan']))`,fieldPath=`.Options.trunk`,reason=FieldValueForbidden,message=`a trunk is a NIC under NetworkType ipvlan or macvlan: set host_device and one of these types, or leave trunk out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.trunk) || !self.Options.trunk || (has(self.AllowedTenants) && size(self.AllowedTenants) > 0)`,fieldPath=`.Options.trunk`,reason=FieldValueForbidden,message=`Pods on a trunk reach every VLAN of the NIC: use a ClusterNetwork that names their namespaces in AllowedTenants, or leave trunk out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.conflict_probe) || !self.Options.conflict_probe || !has(self.NetworkType) || self.NetworkType == "" || self.NetworkType.lowerAscii() in ['ipvlan', 'macvlan']`,fieldPath=`.Options.conflict_probe`,reason=FieldValueForbidden,message=`only NetworkType ipvlan and macvlan probe for address conflicts: leave it out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.source_guard) || !self.Options.source_guard || !has(self.NetworkType) || self.NetworkType == "" || self.NetworkType.lowerAscii() in ['ipvlan', 'macvlan']`,fieldPath=`.Options.source_guard`,reason=FieldValueForbidden,message=`only Pods of NetworkType ipvlan and macvlan are guarded: leave it out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.source_guard) || !self.Options.source_guard || !has(self.Options.host_device) || self.Options.host_device == "" || (has(self.Options.vlan) && self.Options.vlan != 0) || (has(self.Options.vxlan) && self.Options.vxlan != 0)`,fieldPath=`.Options.source_guard`,reason=FieldValueForbidden,message=`Pods on a VLAN or VXLAN are guarded, and those on a NIC itself are not: set vlan or vxlan, or leave it out`
type NetworkSpec struct {
	// NetworkID names the host link (<NetworkID>.<vlan> or vx_<NetworkID>) or,
	// for a static delegate, the file <NetworkID>.conf or .conflist in the
	// node's CNI configuration folder.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$')`,message=`names a link or a file on the nodes: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
	NetworkID string `json:"NetworkID"`

	// NetworkType is ipvlan, macvlan or sriov (in any case) for the backends
	// of Patchbay; anything else names a CNI plugin to delegate to.
	// +optional
	// +kubebuilder:default=ipvlan
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$')`,message=`is ipvlan, macvlan, sriov or the name of a CNI plugin: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
	NetworkType string `json:"NetworkType,omitempty"`

	// AllowedTenants are the namespaces whose Pods may attach; all when empty.
	// ClusterNetwork only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	AllowedTenants []string `json:"AllowedTenants,omitempty"`

	// Options are the network's attributes.
	// +optional
	Options NetworkOptions `json:"Options,omitempty"`
}
