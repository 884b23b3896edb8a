// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TenantConfig is the pool of host devices and VNI ranges for TenantNetworks. It has
// no spec: its fields are DANM's.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tc;tconf,categories=danm
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type TenantConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// HostDevices are the NICs and device pools that tenants may use.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	HostDevices []HostDevice `json:"hostDevices,omitempty"`

	// NetworkIDs maps a NetworkType to the NetworkID of TenantNetworks of that type. It
	// also permits types that delegate to other CNI plugins.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule=`self.all(t, t.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$'))`,message=`must have keys that are NetworkTypes: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
	// +kubebuilder:validation:XValidation:rule=`self.all(t, !(t.lowerAscii() in ["ipvlan", "macvlan", "sriov"]) || size(self[t]) <= 10)`,message=`must have NetworkIDs for ipvlan, macvlan and sriov that are short enough for the names of VLAN and VXLAN links: use at most 10 characters`,messageExpression=`'"' + self[self.filter(t, t.lowerAscii() in ["ipvlan", "macvlan", "sriov"] && size(self[t]) > 10)[0]] + '": must be short enough for the names of VLAN and VXLAN links: use at most 10 characters'`
	NetworkIDs map[string]TenantNetworkID `json:"networkIds,omitempty"`

	// NamespaceSelector selects the namespaces that this TenantConfig is for. If it is not set:
	// all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Subnets contain the cidr and net6 of TenantNetworks. When empty, all subnets are
	// allowed. Of several TenantConfigs for a namespace, those with subnets count.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Subnets []TenantSubnet `json:"subnets,omitempty"`

	// AllowedClusterSubnets are the parts of the cluster's own ranges (for Pods, Services and
	// nodes) that TenantNetworks may use. They must not overlap any other part.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	AllowedClusterSubnets []TenantSubnet `json:"allowedClusterSubnets,omitempty"`

	// Budgets limit each namespace for all TenantConfigs together.
	// +optional
	Budgets *TenantBudgets `json:"budgets,omitempty"`

	// Status has the reservations.
	// +optional
	Status TenantConfigStatus `json:"status,omitempty"`
}

// HostDevice is a NIC or, with a "/" in its name, a device pool, with the range of IDs for tenants.
// +kubebuilder:validation:XValidation:rule=`(has(self.vniType) && self.vniType != "") == (has(self.vniRange) && self.vniRange != "")`,message=`must have vniType and vniRange together: set both, or neither`
// +kubebuilder:validation:XValidation:rule=`!has(self.vniRange) || !self.vniRange.matches('^[0-9]{1,8}(-[0-9]{1,8})?(,[0-9]{1,8}(-[0-9]{1,8})?)*$') || self.vniRange.split(',').all(r, r.split('-').all(n, int(n) >= 1 && int(n) <= (has(self.vniType) && self.vniType == "vlan" ? 4094 : 16777214)))`,fieldPath=`.vniRange`,message=`must have IDs in range: use 1 to 4094 for vlan, 1 to 16777214 for vxlan`,messageExpression=`'"' + self.vniRange + '": must have IDs in range: use 1 to 4094 for vlan, 1 to 16777214 for vxlan'`
// +kubebuilder:validation:XValidation:rule=`!has(self.vniRange) || !self.vniRange.matches('^[0-9]{1,8}(-[0-9]{1,8})?(,[0-9]{1,8}(-[0-9]{1,8})?)*$') || self.vniRange.split(',').map(r, r.split('-').map(n, int(n))).all(r, r[0] <= r[size(r) - 1])`,fieldPath=`.vniRange`,message=`must not have a range that ends before it begins: write the lower ID first`,messageExpression=`'"' + self.vniRange + '": must not have a range that ends before it begins: write the lower ID first'`
type HostDevice struct {
	// Name of the NIC, or resource name of the device pool.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule=`self.contains('/') || (self.matches(r'^[^/:\pZ\pC]+$') && !(self in ['.', '..']) && size(bytes(self)) <= 15)`,message=`must be the name of a NIC (at most 15 bytes without ":" or white space) or, with a "/", the resource of a device plugin`,messageExpression=`'"' + self + '": must be the name of a NIC (at most 15 bytes without ":" or white space) or, with a "/", the resource of a device plugin'`
	Name string `json:"name"`

	// VNIType is vlan or vxlan; only vlan in a new device pool. It needs VNIRange.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self in ["", "vlan", "vxlan"]`,message=`must be vlan or vxlan`
	VNIType string `json:"vniType,omitempty"`

	// VNIRange is a list of IDs and ranges such as "1000-2000,2500".
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[0-9]{1,8}(-[0-9]{1,8})?(,[0-9]{1,8}(-[0-9]{1,8})?)*$')`,message=`must be a list of IDs and ranges without white space, such as "1000-2000,2500"`
	VNIRange string `json:"vniRange,omitempty"`

	// Alloc is DANM's bitmap of used IDs. It must be empty in a new device, and is not read.
	// +optional
	// +kubebuilder:validation:MaxLength=2796204
	Alloc string `json:"alloc,omitempty"`
}

// TenantNetworkID is the NetworkID of TenantNetworks of one type.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$')`,message=`must be a NetworkID: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
type TenantNetworkID string

// TenantSubnet is an IPv4 or IPv6 subnet.
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule=`isCIDR(self)`,message=`must be a subnet with its prefix length, such as "10.0.0.0/8" or "fd00::/32"`
type TenantSubnet string

// TenantBudgets limit one namespace. Of several TenantConfigs for a namespace, the smallest
// number counts.
type TenantBudgets struct {
	// Networks is the number of TenantNetworks; 256 when not set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Networks *int32 `json:"networks,omitempty"`

	// IDs is the number of VLANs and VXLANs; 64 when not set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	IDs *int32 `json:"ids,omitempty"`

	// IDsWithoutNetwork is the number of reservations for networks that do not exist: they
	// are being created, or failed after admission; 2 when not set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2
	IDsWithoutNetwork *int32 `json:"idsWithoutNetwork,omitempty"`
}

// TenantConfigStatus has the reservations of a TenantConfig.
type TenantConfigStatus struct {
	// Reservations map the parts of the pool to their owners. The key is
	// <kind>/<device>/<page>, such as vlan/ens4/15; the value lists the IDs of
	// that page, 64 to a page, each with its owner, as in "1000 team-a/blue
	// 5f3a9c01d2e4b687, 1003 team-b/red 0d4c...". The kind is vlan, vxlan, nic (a
	// device without IDs; the numbers only count its networks) or type (a plugin
	// of networkIds). A list of objects would be clearer, but with 5,000 of them
	// the API server takes half a second for each write.
	// +optional
	// +mapType=atomic
	Reservations map[string]string `json:"reservations,omitempty"`
}

// TenantConfigList is a list of TenantConfigs.
// +kubebuilder:object:root=true
type TenantConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []TenantConfig `json:"items"`
}
