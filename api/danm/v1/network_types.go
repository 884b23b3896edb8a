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

// NetworkOptions are the attributes of a network. Empty strings mean "not set".
// +kubebuilder:validation:XValidation:rule=`!has(self.vlan) || !has(self.vxlan)`,fieldPath=`.vlan`,reason=FieldValueForbidden,message=`a network is on a VLAN or on a VXLAN: leave one of vlan and vxlan out`
// +kubebuilder:validation:XValidation:rule=`!(has(self.host_device) && self.host_device != "") || !(has(self.device_pool) && self.device_pool != "")`,fieldPath=`.host_device`,reason=FieldValueForbidden,message=`the parent is a NIC or comes from a device plugin: leave one of host_device and device_pool out`,messageExpression=`'the parent is a NIC or comes from a device plugin: leave out host_device "' + self.host_device + '" or device_pool "' + self.device_pool + '"'`
// +kubebuilder:validation:XValidation:rule=`(has(self.cidr) && self.cidr != "") || !((has(self.allocation_pool) && has(self.allocation_pool.start) && self.allocation_pool.start != "") || (has(self.allocation_pool) && has(self.allocation_pool.end) && self.allocation_pool.end != ""))`,fieldPath=`.allocation_pool`,reason=FieldValueForbidden,message=`a pool is a part of the subnet: set cidr, or leave the pool out`
// +kubebuilder:validation:XValidation:rule=`!(has(self.cidr) && self.cidr != "") || !(has(self.allocation_pool) && has(self.allocation_pool.start) && self.allocation_pool.start != "") || !isCIDR(self.cidr) || !isIP(self.allocation_pool.start) || cidr(self.cidr).containsIP(self.allocation_pool.start)`,fieldPath=`.allocation_pool.start`,message=`is outside cidr: use an address of the subnet`,messageExpression=`self.allocation_pool.start + ' is outside cidr ' + self.cidr + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`!(has(self.cidr) && self.cidr != "") || !(has(self.allocation_pool) && has(self.allocation_pool.end) && self.allocation_pool.end != "") || !isCIDR(self.cidr) || !isIP(self.allocation_pool.end) || cidr(self.cidr).containsIP(self.allocation_pool.end)`,fieldPath=`.allocation_pool.end`,message=`is outside cidr: use an address of the subnet`,messageExpression=`self.allocation_pool.end + ' is outside cidr ' + self.cidr + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`(has(self.cidr) && self.cidr != "") || !has(self.routes) || size(self.routes) == 0`,fieldPath=`.routes`,reason=FieldValueForbidden,message=`a gateway is an address of the subnet: set cidr, or leave routes out`
// +kubebuilder:validation:XValidation:rule=`!has(self.routes) || !(has(self.cidr) && self.cidr != "") || !isCIDR(self.cidr) || self.routes.all(d, !isIP(self.routes[d]) || cidr(self.cidr).containsIP(self.routes[d]))`,fieldPath=`.routes`,message=`a gateway is outside cidr: use an address of the subnet`,messageExpression=`'a gateway is outside cidr ' + self.cidr + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`(has(self.net6) && self.net6 != "") || !((has(self.allocation_pool_v6) && has(self.allocation_pool_v6.start) && self.allocation_pool_v6.start != "") || (has(self.allocation_pool_v6) && has(self.allocation_pool_v6.end) && self.allocation_pool_v6.end != "") || (has(self.allocation_pool_v6) && has(self.allocation_pool_v6.cidr) && self.allocation_pool_v6.cidr != ""))`,fieldPath=`.allocation_pool_v6`,reason=FieldValueForbidden,message=`a pool is a part of the subnet: set net6, or leave the pool out`
// +kubebuilder:validation:XValidation:rule=`!(has(self.net6) && self.net6 != "") || !(has(self.allocation_pool_v6) && has(self.allocation_pool_v6.cidr) && self.allocation_pool_v6.cidr != "") || !isCIDR(self.net6) || !isCIDR(self.allocation_pool_v6.cidr) || (cidr(self.net6).containsIP(cidr(self.allocation_pool_v6.cidr).ip()) && cidr(self.net6).prefixLength() <= cidr(self.allocation_pool_v6.cidr).prefixLength())`,fieldPath=`.allocation_pool_v6.cidr`,message=`is not a part of net6: use a subnet of it`,messageExpression=`self.allocation_pool_v6.cidr + ' is not a part of net6 ' + self.net6 + ': use a subnet of it'`
// +kubebuilder:validation:XValidation:rule=`!(has(self.net6) && self.net6 != "") || !(has(self.allocation_pool_v6) && has(self.allocation_pool_v6.start) && self.allocation_pool_v6.start != "") || !isCIDR(self.net6) || !isIP(self.allocation_pool_v6.start) || cidr(self.net6).containsIP(self.allocation_pool_v6.start)`,fieldPath=`.allocation_pool_v6.start`,message=`is outside net6: use an address of the subnet`,messageExpression=`self.allocation_pool_v6.start + ' is outside net6 ' + self.net6 + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`!(has(self.net6) && self.net6 != "") || !(has(self.allocation_pool_v6) && has(self.allocation_pool_v6.end) && self.allocation_pool_v6.end != "") || !isCIDR(self.net6) || !isIP(self.allocation_pool_v6.end) || cidr(self.net6).containsIP(self.allocation_pool_v6.end)`,fieldPath=`.allocation_pool_v6.end`,message=`is outside net6: use an address of the subnet`,messageExpression=`self.allocation_pool_v6.end + ' is outside net6 ' + self.net6 + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`(has(self.net6) && self.net6 != "") || !has(self.routes6) || size(self.routes6) == 0`,fieldPath=`.routes6`,reason=FieldValueForbidden,message=`a gateway is an address of the subnet: set net6, or leave routes6 out`
// +kubebuilder:validation:XValidation:rule=`!has(self.routes6) || !(has(self.net6) && self.net6 != "") || !isCIDR(self.net6) || self.routes6.all(d, !isIP(self.routes6[d]) || cidr(self.net6).containsIP(self.routes6[d]))`,fieldPath=`.routes6`,message=`a gateway is outside net6: use an address of the subnet`,messageExpression=`'a gateway is outside net6 ' + self.net6 + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`!has(self.trunk) || !self.trunk || !(has(self.vlan) || has(self.vxlan))`,fieldPath=`.trunk`,reason=FieldValueForbidden,message=`Pods on a VLAN or VXLAN send no tags of their own: leave out trunk, or vlan and vxlan`
// +kubebuilder:validation:XValidation:rule=`!has(self.static_pool) || self.static_pool.all(r, [r.start, has(r.end) && r.end != "" ? r.end : r.start].all(a, !isIP(a) || (ip(a).family() == 4 ? has(self.cidr) && isCIDR(self.cidr) && cidr(self.cidr).containsIP(a) : has(self.net6) && isCIDR(self.net6) && cidr(self.net6).containsIP(a))))`,fieldPath=`.static_pool`,message=`a range is outside cidr and net6: use addresses of the subnets`
type NetworkOptions struct {
	// Device is the parent NIC on the node.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule=`self == "" || (self.matches(r'^[^/:\pZ\pC]+$') && !(self in ['.', '..']) && size(bytes(self)) <= 15)`,message=`is the name of a NIC: use at most 15 bytes without "/", ":" or white space`
	Device string `json:"host_device,omitempty"`

	// DevicePool is the resource name of a device plugin; required for sriov.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	DevicePool string `json:"device_pool,omitempty"`

	// VLAN is the IEEE 802.1Q ID of the host link.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// VXLAN is the VNI of the host link (RFC 7348).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777214
	VXLAN int32 `json:"vxlan,omitempty"`

	// Trunk lets Pods send frames with VLAN tags into host_device. Only for a
	// ClusterNetwork with AllowedTenants, of NetworkType ipvlan or macvlan, without
	// vlan and vxlan.
	// +optional
	Trunk bool `json:"trunk,omitempty"`

	// Prefix is the first part of the interface's name in the Pod; eth when not
	// set.
	// +optional
	// +kubebuilder:validation:MaxLength=14
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches(r'^[A-Za-z][A-Za-z0-9_-]{0,13}$')`,message=`begins the names of interfaces: use a letter, then at most 13 letters, digits, "_" or "-"`
	Prefix string `json:"container_prefix,omitempty"`

	// MTU of the Pods' interfaces in bytes; the parent's when not set, less
	// what VXLAN adds.
	// +optional
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=9216
	MTU int32 `json:"mtu,omitempty"`

	// CIDR is the IPv4 subnet; it makes the network L3 for IPv4.
	// +optional
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 4)`,message=`is an IPv4 subnet with its prefix length, such as "10.0.0.0/24"`
	// +kubebuilder:validation:XValidation:rule=`self == "" || !isCIDR(self) || cidr(self).ip().family() != 4 || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32'].all(s, !cidr(s).containsIP(cidr(self).ip()) && !cidr(self).containsIP(cidr(s).ip()))`,message=`must be outside 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4 and 255.255.255.255/32, which are for special purposes`
	CIDR string `json:"cidr,omitempty"`

	// Pool is the range of dynamic IPv4 addresses; the subnet without its first
	// and last address when not set.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || self.start == "" || (isIP(self.start) && ip(self.start).family() == 4)`,fieldPath=`.start`,message=`is an IPv4 address, such as "10.0.0.10"`,messageExpression=`'"' + self.start + '" is not an IPv4 address, such as "10.0.0.10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.end) || self.end == "" || (isIP(self.end) && ip(self.end).family() == 4)`,fieldPath=`.end`,message=`is an IPv4 address, such as "10.0.0.10"`,messageExpression=`'"' + self.end + '" is not an IPv4 address, such as "10.0.0.10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.lastIp) || self.lastIp == "" || (isIP(self.lastIp) && ip(self.lastIp).family() == 4)`,fieldPath=`.lastIp`,message=`is an IPv4 address, such as "10.0.0.10"`,messageExpression=`'"' + self.lastIp + '" is not an IPv4 address, such as "10.0.0.10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || !has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 4 || ip(self.end).family() != 4 || [[self.start, self.end].map(a, a.split('.').map(o, int(o)))].all(r, [0, 1, 2, 3].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`is before start: use an address from start on`,messageExpression=`self.end + ' is before start ' + self.start + ': use an address from start on'`
	Pool *IPPool `json:"allocation_pool,omitempty"`

	// Net6 is the IPv6 subnet; it makes the network L3 for IPv6.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 6)`,message=`is an IPv6 subnet with its prefix length, such as "fd00::/64"`
	// +kubebuilder:validation:XValidation:rule=`self == "" || !isCIDR(self) || cidr(self).ip().family() != 6 || ['::/80', 'fe80::/10', 'ff00::/8'].all(s, !cidr(s).containsIP(cidr(self).ip()) && !cidr(self).containsIP(cidr(s).ip()))`,message=`must be outside ::/80, fe80::/10 and ff00::/8, which are for special purposes`
	Net6 string `json:"net6,omitempty"`

	// Pool6 is the range of dynamic IPv6 addresses; all of net6 when not set.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || self.start == "" || (isIP(self.start) && ip(self.start).family() == 6)`,fieldPath=`.start`,message=`is an IPv6 address, such as "fd00::10"`,messageExpression=`'"' + self.start + '" is not an IPv6 address, such as "fd00::10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.end) || self.end == "" || (isIP(self.end) && ip(self.end).family() == 6)`,fieldPath=`.end`,message=`is an IPv6 address, such as "fd00::10"`,messageExpression=`'"' + self.end + '" is not an IPv6 address, such as "fd00::10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.lastIp) || self.lastIp == "" || (isIP(self.lastIp) && ip(self.lastIp).family() == 6)`,fieldPath=`.lastIp`,message=`is an IPv6 address, such as "fd00::10"`,messageExpression=`'"' + self.lastIp + '" is not an IPv6 address, such as "fd00::10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.cidr) || self.cidr == "" || (isCIDR(self.cidr) && cidr(self.cidr).ip().family() == 6)`,fieldPath=`.cidr`,message=`is an IPv6 subnet with its prefix length, such as "fd00::/80"`,messageExpression=`'"' + self.cidr + '" is not an IPv6 subnet with its prefix length, such as "fd00::/80"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || !has(self.cidr) || !isIP(self.start) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.start)`,fieldPath=`.start`,message=`is outside the pool's cidr: use an address of it`,messageExpression=`self.start + ' is outside the pool\'s cidr ' + self.cidr + ': use an address of it'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.end) || !has(self.cidr) || !isIP(self.end) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.end)`,fieldPath=`.end`,message=`is outside the pool's cidr: use an address of it`,messageExpression=`self.end + ' is outside the pool\'s cidr ' + self.cidr + ': use an address of it'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || !has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 6 || ip(self.end).family() != 6 || [[string(ip(self.start)), string(ip(self.end))].map(a, (a.startsWith('::') ? '0' : '') + a + (a.endsWith('::') ? '0' : '')).map(a, a.replace('::', [':', ':0:', ':0:0:', ':0:0:0:', ':0:0:0:0:', ':0:0:0:0:0:', ':0:0:0:0:0:0:'][9 - size(a.split(':'))]).split(':').map(h, ('000' + h).substring(size(h) - 1)).map(h, [0, 1, 2, 3].map(i, '0123456789abcdef'.indexOf(h.substring(i, i + 1)))).map(d, d[0] * 4096 + d[1] * 256 + d[2] * 16 + d[3]))].all(r, [0, 1, 2, 3, 4, 5, 6, 7].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3, 4, 5, 6, 7].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`is before start: use an address from start on`,messageExpression=`self.end + ' is before start ' + self.start + ': use an address from start on'`
	Pool6 *IPPoolV6 `json:"allocation_pool_v6,omitempty"`

	// Routes maps IPv4 destinations to gateways, for every attached Pod.
	// They have one owner in server-side apply: the API server takes longer than a
	// request may to track 100,000 of them before it counts them.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule=`self.all(d, isCIDR(d) && cidr(d).ip().family() == 4)`,message=`a destination (the key) is an IPv4 subnet with its prefix length, such as "10.1.0.0/16"`
	// +kubebuilder:validation:XValidation:rule=`self.all(d, !isCIDR(d) || self.exists_one(e, isCIDR(e) && cidr(e).prefixLength() == cidr(d).prefixLength() && cidr(e).containsIP(cidr(d).ip())))`,message=`two destinations (the keys) are the same subnet: name each once`
	Routes map[string]Gateway `json:"routes,omitempty"`

	// Routes6 maps IPv6 destinations to gateways, for every attached Pod.
	// They have one owner in server-side apply: the API server takes longer than a
	// request may to track 100,000 of them before it counts them.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule=`self.all(d, isCIDR(d) && cidr(d).ip().family() == 6)`,message=`a destination (the key) is an IPv6 subnet with its prefix length, such as "fd01::/48"`
	// +kubebuilder:validation:XValidation:rule=`self.all(d, !isCIDR(d) || self.exists_one(e, isCIDR(e) && cidr(e).prefixLength() == cidr(d).prefixLength() && cidr(e).containsIP(cidr(d).ip())))`,message=`two destinations (the keys) are the same subnet: name each once`
	Routes6 map[string]GatewayV6 `json:"routes6,omitempty"`

	// StaticPool are the ranges of both families that static addresses lie in; the
	// subnets when not set. An empty list allows none. It is never left out when empty:
	// that would allow all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	StaticPool []IPRange `json:"static_pool,omitzero"`

	// RTTables is the routing table of the Pods' policy routes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule=`self <= 252 || self >= 256`,message=`tables 253 to 255 are the kernel's own: use 0 to 252, or 256 and up`
	RTTables int32 `json:"rt_tables,omitempty"`

	// ConflictProbe asks the network for each address before a Pod gets it, by ARP
	// (RFC 5227) and neighbour discovery (RFC 4862). An address that another machine has
	// is kept from Pods for an hour. It adds 120 ms to the start of a Pod. True for
	// macvlan and false for all else when not set; only macvlan and ipvlan can.
	// +optional
	ConflictProbe *bool `json:"conflict_probe,omitempty"`

	// SourceGuard drops what Pods send into the network with a MAC or address that is not
	// theirs, or as a router: IPv4, ARP, IPv6 and neighbour discovery are compared with the
	// addresses of the node's Pods, and other protocols are dropped. It is for networks on a
	// VLAN or VXLAN with NetworkType ipvlan or macvlan, and works where frames leave the
	// node: Pods of one network on one node are not guarded from each other. All networks on
	// a link must have it. When not set, it is true for TenantNetworks on a VLAN or VXLAN
	// on nodes whose kernel can (Linux 5.16), and false for all else. Where a kernel cannot,
	// Pods of a network with true do not start.
	// +optional
	SourceGuard *bool `json:"source_guard,omitempty"`

	// Alloc is DANM's IPv4 bitmap. It is refused in a new network, and not read.
	// +optional
	// +kubebuilder:validation:MaxLength=1398104
	Alloc string `json:"alloc,omitempty"`

	// Alloc6 is DANM's IPv6 bitmap. It is refused in a new network, and not read.
	// +optional
	// +kubebuilder:validation:MaxLength=1398104
	Alloc6 string `json:"alloc6,omitempty"`
}

// Gateway is the IPv4 address that a route leads to, inside the network's cidr.
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:XValidation:rule=`isIP(self) && ip(self).family() == 4`,message=`a gateway is an IPv4 address, such as "10.0.0.1"`
type Gateway string

// GatewayV6 is the IPv6 address that a route leads to, inside the network's net6.
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule=`isIP(self) && ip(self).family() == 6`,message=`a gateway is an IPv6 address, such as "fd00::1"`
type GatewayV6 string

// IPPool is a range of addresses, both ends included.
type IPPool struct {
	// Start is the first dynamic address.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	Start string `json:"start,omitempty"`

	// End is the last dynamic address.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	End string `json:"end,omitempty"`

	// LastIP is DANM's cursor. It is refused in a new network, and not read.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	LastIP string `json:"lastIp,omitempty"`
}

// IPPoolV6 is a range of IPv6 addresses, as a subnet, as two ends, or both.
type IPPoolV6 struct {
	IPPool `json:",inline"`

	// CIDR is a part of net6 that the dynamic addresses come from.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr,omitempty"`
}

// IPRange is a range of addresses of one family, both ends included.
// +kubebuilder:validation:XValidation:rule=`isIP(self.start)`,fieldPath=`.start`,message=`is an IPv4 or IPv6 address, such as "10.0.0.10"`
// +kubebuilder:validation:XValidation:rule=`!has(self.end) || self.end == "" || (isIP(self.end) && (!isIP(self.start) || ip(self.start).family() == ip(self.end).family()))`,fieldPath=`.end`,message=`is an address of the same family as start, such as "10.0.0.20"`
// +kubebuilder:validation:XValidation:rule=`!has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 4 || ip(self.end).family() != 4 || [[self.start, self.end].map(a, a.split('.').map(o, int(o)))].all(r, [0, 1, 2, 3].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`is before start: use an address from start on`,messageExpression=`self.end + ' is before start ' + self.start + ': use an address from start on'`
// +kubebuilder:validation:XValidation:rule=`!has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 6 || ip(self.end).family() != 6 || [[string(ip(self.start)), string(ip(self.end))].map(a, (a.startsWith('::') ? '0' : "") + a + (a.endsWith('::') ? '0' : "")).map(a, a.replace('::', [':', ':0:', ':0:0:', ':0:0:0:', ':0:0:0:0:', ':0:0:0:0:0:', ':0:0:0:0:0:0:'][9 - size(a.split(':'))]).split(':').map(h, ('000' + h).substring(size(h) - 1)).map(h, [0, 1, 2, 3].map(i, '0123456789abcdef'.indexOf(h.substring(i, i + 1)))).map(d, d[0] * 4096 + d[1] * 256 + d[2] * 16 + d[3]))].all(r, [0, 1, 2, 3, 4, 5, 6, 7].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3, 4, 5, 6, 7].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`is before start: use an address from start on`,messageExpression=`self.end + ' is before start ' + self.start + ': use an address from start on'`
type IPRange struct {
	// Start is the first address.
	// +kubebuilder:validation:MaxLength=45
	Start string `json:"start"`

	// End is the last address; Start when not set.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	End string `json:"end,omitempty"`
}
