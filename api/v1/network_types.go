// SPDX-License-Identifier: Apache-2.0

package v1

// NetworkSpec describes a network. One struct serves the three network kinds.
type NetworkSpec struct {
	// NetworkID names the host link (<NetworkID>.<vlan> or vx_<NetworkID>) or,
	// for a static delegate, the file <NetworkID>.conf or .conflist in the
	// node's CNI configuration folder.
	NetworkID string `json:"NetworkID"`

	// NetworkType is ipvlan, macvlan or sriov (in any case) for the backends
	// of Patchbay; anything else names a CNI plugin to delegate to.
	// +optional
	NetworkType string `json:"NetworkType,omitempty"`

	// AllowedTenants are the namespaces whose Pods may attach; all when empty.
	// ClusterNetwork only.
	// +optional
	AllowedTenants []string `json:"AllowedTenants,omitempty"`

	// Options are the network's attributes.
	// +optional
	Options NetworkOptions `json:"Options,omitempty"`
}

// NetworkOptions are the attributes of a network. Empty strings mean "not set".
type NetworkOptions struct {
	// Device is the parent NIC on the node.
	// +optional
	Device string `json:"host_device,omitempty"`

	// DevicePool is the resource name of a device plugin; required for sriov.
	// +optional
	DevicePool string `json:"device_pool,omitempty"`

	// VLAN is the IEEE 802.1Q ID of the host link.
	// +optional
	VLAN int32 `json:"vlan,omitempty"`

	// VXLAN is the VNI of the host link (RFC 7348).
	// +optional
	VXLAN int32 `json:"vxlan,omitempty"`

	// Prefix is the first part of the interface's name in the Pod.
	// +optional
	Prefix string `json:"container_prefix,omitempty"`

	// MTU of the Pods' interfaces in bytes; the parent's when not set, less
	// what VXLAN adds.
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// CIDR is the IPv4 subnet; it makes the network L3 for IPv4.
	// +optional
	CIDR string `json:"cidr,omitempty"`

	// Pool is the range of dynamic IPv4 addresses.
	// +optional
	Pool *IPPool `json:"allocation_pool,omitempty"`

	// Net6 is the IPv6 subnet; it makes the network L3 for IPv6.
	// +optional
	Net6 string `json:"net6,omitempty"`

	// Pool6 is the range of dynamic IPv6 addresses.
	// +optional
	Pool6 *IPPoolV6 `json:"allocation_pool_v6,omitempty"`

	// Routes maps IPv4 destinations to gateways, for every attached Pod.
	// +optional
	Routes map[string]string `json:"routes,omitempty"`

	// Routes6 maps IPv6 destinations to gateways, for every attached Pod.
	// +optional
	Routes6 map[string]string `json:"routes6,omitempty"`

	// RTTables is the routing table of the Pods' policy routes.
	// +optional
	RTTables int32 `json:"rt_tables,omitempty"`

	// Alloc is DANM's IPv4 bitmap; read once to take over a live network.
	// +optional
	Alloc string `json:"alloc,omitempty"`

	// Alloc6 is DANM's IPv6 bitmap; read once to take over a live network.
	// +optional
	Alloc6 string `json:"alloc6,omitempty"`
}

// IPPool is a range of addresses, both ends included.
type IPPool struct {
	// Start is the first dynamic address.
	// +optional
	Start string `json:"start,omitempty"`

	// End is the last dynamic address.
	// +optional
	End string `json:"end,omitempty"`

	// LastIP is DANM's cursor; read once to take over a live network.
	// +optional
	LastIP string `json:"lastIp,omitempty"`
}

// IPPoolV6 is a range of IPv6 addresses, as a subnet, as two ends, or both.
type IPPoolV6 struct {
	IPPool `json:",inline"`

	// CIDR is a part of net6 that the dynamic addresses come from.
	// +optional
	CIDR string `json:"cidr,omitempty"`
}
