// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TenantConfig is the pool of host devices and VNI ranges that TenantNetworks
// draw from. It has no spec: its fields are DANM's.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tc;tconf,categories=danm
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type TenantConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// HostDevices are the NICs and device pools that tenants may use.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	HostDevices []HostDevice `json:"hostDevices,omitempty"`

	// NetworkIDs maps a NetworkType to the NetworkID that tenants' networks of
	// that type get. It also permits types that delegate to other CNI plugins.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule=`self.all(t, t.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$'))`,message=`a key is a NetworkType: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
	// +kubebuilder:validation:XValidation:rule=`self.all(t, !(t.lowerAscii() in ["ipvlan", "macvlan", "sriov"]) || size(self[t]) <= 10)`,message=`a NetworkID for ipvlan, macvlan or sriov is borne by VLAN and VXLAN links: use at most 10 characters`
	NetworkIDs map[string]TenantNetworkID `json:"networkIds,omitempty"`

	// NamespaceSelector limits this TenantConfig to some namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Subnets are where the cidr and net6 of tenants' networks must lie; anywhere when
	// there are none. Of several TenantConfigs for a namespace those with subnets count.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Subnets []TenantSubnet `json:"subnets,omitempty"`

	// AllowedClusterSubnets are parts of the cluster's own ranges (for Pods, Services and
	// nodes) that tenants may use all the same. No tenant may overlap any other part.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	AllowedClusterSubnets []TenantSubnet `json:"allowedClusterSubnets,omitempty"`

	// Budgets bound what each namespace has of all TenantConfigs together.
	// +optional
	Budgets *TenantBudgets `json:"budgets,omitempty"`

	// Status holds the reservations.
	// +optional
	Status TenantConfigStatus `json:"status,omitempty"`
}

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

// TenantSubnet is an IPv4 or IPv6 subnet.
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule=`isCIDR(self)`,message=`is a subnet with its prefix length, such as "10.0.0.0/8" or "fd00::/32"`
type TenantSubnet string

// TenantBudgets bound what one namespace has. Of several TenantConfigs for a namespace the
// smallest number counts.
type TenantBudgets struct {
	// Networks is how many TenantNetworks; 256 when not set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Networks *int32 `json:"networks,omitempty"`

	// IDs is how many VLANs and VXLANs; 64 when not set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	IDs *int32 `json:"ids,omitempty"`

	// IDsWithoutNetwork is for how many networks something is reserved that do not
	// exist: they are being created, or failed after admission; 2 when not set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2
	IDsWithoutNetwork *int32 `json:"idsWithoutNetwork,omitempty"`
}

// TenantConfigStatus is what is reserved of a TenantConfig.
type TenantConfigStatus struct {
	// Conditions: Ready, and what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Reservations say who has which part of the pool. The key is
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
