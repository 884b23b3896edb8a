// SPDX-License-Identifier: Apache-2.0

package v1

// HostDevice is a NIC or, with a "/" in its name, a device pool, and the
// virtual network IDs that may be used on it.
// +kubebuilder:validation:XValidation:rule=`(has(self.vniType) && self.vniType != "") == (has(self.vniRange) && self.vniRange != "")`,message=`vniType and vniRange go together: set both, or neither`
// +kubebuilder:validation:XValidation:rule=`!has(self.vniRange) || !self.vniRange.matches('^[0-9]{1,8}(-[0-9]{1,8})?(,[0-9]{1,8}(-[0-9]{1,8})?)*$') || self.vniRange.split(',').all(r, r.split('-').all(n, int(n) >= 1 && int(n) <= (has(self.vniType) && self.vniType == "vlan" ? 4094 : 16777214)))`,fieldPath=`.vniRange`,message=`an ID is out of range: use 1 to 4094 for vlan, 1 to 16777214 for vxlan`,messageExpression=`'an ID in "' + self.vniRange + '" is out of range: use 1 to 4094 for vlan, 1 to 16777214 for vxlan'`
// +kubebuilder:validation:XValidation:rule=`!has(self.vniRange) || !self.vniRange.matches('^[0-9]{1,8}(-[0-9]{1,8})?(,[0-9]{1,8}(-[0-9]{1,8})?)*$') || self.vniRange.split(',').map(r, r.split('-').map(n, int(n))).all(r, r[0] <= r[size(r) - 1])`,fieldPath=`.vniRange`,message=`a range ends before it begins`,messageExpression=`'a range in "' + self.vniRange + '" ends before it begins'`
type HostDevice struct {
	// Name of the NIC, or resource name of the device pool.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule=`self.contains('/') || (self.matches(r'^[^/:\pZ\pC]+$') && !(self in ['.', '..']) && size(bytes(self)) <= 15)`,message=`is the name of a NIC (at most 15 bytes without ":" or white space) or, with a "/", the resource of a device plugin`,messageExpression=`'"' + self + '" is neither the name of a NIC (at most 15 bytes without ":" or white space) nor, with a "/", the resource of a device plugin'`
	Name string `json:"name"`

	// VNIType is vlan or vxlan; needs VNIRange.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self in ["", "vlan", "vxlan"]`,message=`is vlan or vxlan`
	VNIType string `json:"vniType,omitempty"`

	// VNIRange is a list of IDs and ranges such as "1000-2000,2500".
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[0-9]{1,8}(-[0-9]{1,8})?(,[0-9]{1,8}(-[0-9]{1,8})?)*$')`,message=`is a list of IDs and ranges without white space, such as "1000-2000,2500"`
	VNIRange string `json:"vniRange,omitempty"`

	// Alloc is DANM's bitmap of used IDs; accepted, never read or written.
	// +optional
	// +kubebuilder:validation:MaxLength=2796204
	Alloc string `json:"alloc,omitempty"`
}

// TenantNetworkID is the NetworkID that tenants' networks of a type get.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$')`,message=`is a NetworkID: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
type TenantNetworkID string
