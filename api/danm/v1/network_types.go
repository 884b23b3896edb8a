// SPDX-License-Identifier: Apache-2.0

package v1

// NetworkSpec describes a network. The three network kinds share it.
// +kubebuilder:validation:XValidation:rule=`!has(self.NetworkType) || self.NetworkType.lowerAscii() != 'sriov' || (has(self.Options) && has(self.Options.device_pool) && self.Options.device_pool != "")`,fieldPath=`.Options.device_pool`,reason=FieldValueRequired,message=`must name the resource of a device plugin for NetworkType sriov, such as "example.com/sriov_ens4"`
// +kubebuilder:validation:XValidation:rule=`!has(self.NetworkType) || self.NetworkType.lowerAscii() != 'sriov' || !has(self.Options) || !has(self.Options.host_device) || self.Options.host_device == ""`,fieldPath=`.Options.host_device`,reason=FieldValueForbidden,message=`must not be set for NetworkType sriov, which takes devices from device_pool: leave host_device out`,messageExpression=`'must not be set for NetworkType sriov, which takes devices from device_pool: leave host_device "' + self.Options.host_device + '" out'`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !(has(self.Options.vlan) || has(self.Options.vxlan)) || (has(self.NetworkType) && self.NetworkType.lowerAscii() == 'sriov') || size(self.NetworkID) <= 10`,fieldPath=`.NetworkID`,message=`must be short enough for the name of a VLAN or VXLAN link, which has at most 15 bytes: use at most 10 characters`,messageExpression=`'"' + self.NetworkID + '": must be short enough for the name of a VLAN or VXLAN link, which has at most 15 bytes: use at most 10 characters'`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.trunk) || !self.Options.trunk || (has(self.Options.host_device) && self.Options.host_device != "" && (!has(self.NetworkType) || self.NetworkType == "" || self.NetworkType.lowerAscii() in ['ipvlan', 'macvlan']))`,fieldPath=`.Options.trunk`,reason=FieldValueForbidden,message=`must be on a NIC with NetworkType ipvlan or macvlan: set host_device and one of these types, or leave trunk out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.trunk) || !self.Options.trunk || (has(self.AllowedTenants) && size(self.AllowedTenants) > 0)`,fieldPath=`.Options.trunk`,reason=FieldValueForbidden,message=`must come with AllowedTenants, because Pods on a trunk reach every VLAN of the NIC: list the namespaces in AllowedTenants of a ClusterNetwork, or leave trunk out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.conflict_probe) || !self.Options.conflict_probe || !has(self.NetworkType) || self.NetworkType == "" || self.NetworkType.lowerAscii() in ['ipvlan', 'macvlan']`,fieldPath=`.Options.conflict_probe`,reason=FieldValueForbidden,message=`must not be true for this NetworkType, because only ipvlan and macvlan probe for address conflicts: leave it out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.source_guard) || !self.Options.source_guard || !has(self.NetworkType) || self.NetworkType == "" || self.NetworkType.lowerAscii() in ['ipvlan', 'macvlan']`,fieldPath=`.Options.source_guard`,reason=FieldValueForbidden,message=`must not be true for this NetworkType, because only Pods of ipvlan and macvlan are guarded: leave it out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.source_guard) || !self.Options.source_guard || !has(self.Options.host_device) || self.Options.host_device == "" || (has(self.Options.vlan) && self.Options.vlan != 0) || (has(self.Options.vxlan) && self.Options.vxlan != 0)`,fieldPath=`.Options.source_guard`,reason=FieldValueForbidden,message=`must come with vlan or vxlan, because Pods on a NIC itself are not guarded: set vlan or vxlan, or leave it out`
// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.sriov) || (has(self.NetworkType) && self.NetworkType.lowerAscii() == 'sriov')`,fieldPath=`.Options.sriov`,reason=FieldValueForbidden,message=`must not be set for this NetworkType, because only virtual functions have these settings: use NetworkType sriov, or leave sriov out`
type NetworkSpec struct {
	// NetworkID is part of the host link's name (<NetworkID>.<vlan> or vx_<NetworkID>). For a
	// static delegate it is the name of the file <NetworkID>.conf or .conflist in the node's CNI
	// configuration folder.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$')`,message=`must be a name for a link or a file on the nodes: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
	NetworkID string `json:"NetworkID"`

	// NetworkType is ipvlan, macvlan or sriov (upper or lower case) for the backends of Patchbay.
	// Any other value is the CNI plugin to delegate to.
	// +optional
	// +kubebuilder:default=ipvlan
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches(r'^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$')`,message=`must be ipvlan, macvlan, sriov or the name of a CNI plugin: use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`
	NetworkType string `json:"NetworkType,omitempty"`

	// AllowedTenants are the namespaces whose Pods may attach; all if it is empty. Only for a
	// ClusterNetwork.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	AllowedTenants []string `json:"AllowedTenants,omitempty"`

	// Options are the attributes of the network.
	// +optional
	Options NetworkOptions `json:"Options,omitempty"`
}

// NetworkOptions are the attributes of a network. Empty strings mean "not set".
// +kubebuilder:validation:XValidation:rule=`!has(self.vlan) || !has(self.vxlan)`,fieldPath=`.vlan`,reason=FieldValueForbidden,message=`must not be set with vxlan: leave one of vlan and vxlan out`
// +kubebuilder:validation:XValidation:rule=`!(has(self.host_device) && self.host_device != "") || !(has(self.device_pool) && self.device_pool != "")`,fieldPath=`.host_device`,reason=FieldValueForbidden,message=`must not be set with device_pool: leave one of host_device and device_pool out`,messageExpression=`'must not be set with device_pool: leave out host_device "' + self.host_device + '" or device_pool "' + self.device_pool + '"'`
// +kubebuilder:validation:XValidation:rule=`(has(self.cidr) && self.cidr != "") || !((has(self.allocation_pool) && has(self.allocation_pool.start) && self.allocation_pool.start != "") || (has(self.allocation_pool) && has(self.allocation_pool.end) && self.allocation_pool.end != ""))`,fieldPath=`.allocation_pool`,reason=FieldValueForbidden,message=`must come with cidr, because a pool is a part of the subnet: set cidr, or leave the pool out`
// +kubebuilder:validation:XValidation:rule=`!(has(self.cidr) && self.cidr != "") || !(has(self.allocation_pool) && has(self.allocation_pool.start) && self.allocation_pool.start != "") || !isCIDR(self.cidr) || !isIP(self.allocation_pool.start) || cidr(self.cidr).containsIP(self.allocation_pool.start)`,fieldPath=`.allocation_pool.start`,message=`must be in cidr: use an address of the subnet`,messageExpression=`'\"' + self.allocation_pool.start + '\": must be in cidr ' + self.cidr + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`!(has(self.cidr) && self.cidr != "") || !(has(self.allocation_pool) && has(self.allocation_pool.end) && self.allocation_pool.end != "") || !isCIDR(self.cidr) || !isIP(self.allocation_pool.end) || cidr(self.cidr).containsIP(self.allocation_pool.end)`,fieldPath=`.allocation_pool.end`,message=`must be in cidr: use an address of the subnet`,messageExpression=`'\"' + self.allocation_pool.end + '\": must be in cidr ' + self.cidr + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`(has(self.cidr) && self.cidr != "") || !has(self.routes) || size(self.routes) == 0`,fieldPath=`.routes`,reason=FieldValueForbidden,message=`must come with cidr, because a gateway is an address of the subnet: set cidr, or leave routes out`
// +kubebuilder:validation:XValidation:rule=`!has(self.routes) || !(has(self.cidr) && self.cidr != "") || !isCIDR(self.cidr) || self.routes.all(d, !isIP(self.routes[d]) || cidr(self.cidr).containsIP(self.routes[d]))`,fieldPath=`.routes`,message=`must have gateways in cidr: use addresses of the subnet`,messageExpression=`self.routes.map(d, isIP(self.routes[d]) && !cidr(self.cidr).containsIP(self.routes[d]), '"' + self.routes[d] + '": must be in cidr ' + self.cidr + ' as the gateway of ' + d)[0] + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`(has(self.net6) && self.net6 != "") || !((has(self.allocation_pool_v6) && has(self.allocation_pool_v6.start) && self.allocation_pool_v6.start != "") || (has(self.allocation_pool_v6) && has(self.allocation_pool_v6.end) && self.allocation_pool_v6.end != "") || (has(self.allocation_pool_v6) && has(self.allocation_pool_v6.cidr) && self.allocation_pool_v6.cidr != ""))`,fieldPath=`.allocation_pool_v6`,reason=FieldValueForbidden,message=`must come with net6, because a pool is a part of the subnet: set net6, or leave the pool out`
// +kubebuilder:validation:XValidation:rule=`!(has(self.net6) && self.net6 != "") || !(has(self.allocation_pool_v6) && has(self.allocation_pool_v6.cidr) && self.allocation_pool_v6.cidr != "") || !isCIDR(self.net6) || !isCIDR(self.allocation_pool_v6.cidr) || (cidr(self.net6).containsIP(cidr(self.allocation_pool_v6.cidr).ip()) && cidr(self.net6).prefixLength() <= cidr(self.allocation_pool_v6.cidr).prefixLength())`,fieldPath=`.allocation_pool_v6.cidr`,message=`must be a part of net6: use a subnet of it`,messageExpression=`'\"' + self.allocation_pool_v6.cidr + '\": must be a part of net6 ' + self.net6 + ': use a subnet of it'`
// +kubebuilder:validation:XValidation:rule=`!(has(self.net6) && self.net6 != "") || !(has(self.allocation_pool_v6) && has(self.allocation_pool_v6.start) && self.allocation_pool_v6.start != "") || !isCIDR(self.net6) || !isIP(self.allocation_pool_v6.start) || cidr(self.net6).containsIP(self.allocation_pool_v6.start)`,fieldPath=`.allocation_pool_v6.start`,message=`must be in net6: use an address of the subnet`,messageExpression=`'\"' + self.allocation_pool_v6.start + '\": must be in net6 ' + self.net6 + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`!(has(self.net6) && self.net6 != "") || !(has(self.allocation_pool_v6) && has(self.allocation_pool_v6.end) && self.allocation_pool_v6.end != "") || !isCIDR(self.net6) || !isIP(self.allocation_pool_v6.end) || cidr(self.net6).containsIP(self.allocation_pool_v6.end)`,fieldPath=`.allocation_pool_v6.end`,message=`must be in net6: use an address of the subnet`,messageExpression=`'\"' + self.allocation_pool_v6.end + '\": must be in net6 ' + self.net6 + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`(has(self.net6) && self.net6 != "") || !has(self.routes6) || size(self.routes6) == 0`,fieldPath=`.routes6`,reason=FieldValueForbidden,message=`must come with net6, because a gateway is an address of the subnet: set net6, or leave routes6 out`
// +kubebuilder:validation:XValidation:rule=`!has(self.routes6) || !(has(self.net6) && self.net6 != "") || !isCIDR(self.net6) || self.routes6.all(d, !isIP(self.routes6[d]) || cidr(self.net6).containsIP(self.routes6[d]))`,fieldPath=`.routes6`,message=`must have gateways in net6: use addresses of the subnet`,messageExpression=`self.routes6.map(d, isIP(self.routes6[d]) && !cidr(self.net6).containsIP(self.routes6[d]), '"' + self.routes6[d] + '": must be in net6 ' + self.net6 + ' as the gateway of ' + d)[0] + ': use an address of the subnet'`
// +kubebuilder:validation:XValidation:rule=`!has(self.trunk) || !self.trunk || !(has(self.vlan) || has(self.vxlan))`,fieldPath=`.trunk`,reason=FieldValueForbidden,message=`must not be set with vlan or vxlan: leave out trunk, or vlan and vxlan`
// +kubebuilder:validation:XValidation:rule=`!has(self.static_pool) || self.static_pool.all(r, [r.start, has(r.end) && r.end != "" ? r.end : r.start].all(a, !isIP(a) || (ip(a).family() == 4 ? has(self.cidr) && isCIDR(self.cidr) && cidr(self.cidr).containsIP(a) : has(self.net6) && isCIDR(self.net6) && cidr(self.net6).containsIP(a))))`,fieldPath=`.static_pool`,message=`must have ranges in cidr or net6: use addresses of the subnets`,messageExpression=`'must have ranges in cidr or net6: use addresses of ' + (has(self.cidr) ? self.cidr : "") + (has(self.cidr) && self.cidr != "" && has(self.net6) && self.net6 != "" ? ' or ' : "") + (has(self.net6) ? self.net6 : "")`
// +kubebuilder:validation:XValidation:rule=`has(self.vlan) || !has(self.sriov) || !has(self.sriov.vlan_qos) || self.sriov.vlan_qos == 0`,fieldPath=`.sriov.vlan_qos`,reason=FieldValueForbidden,message=`must come with vlan, because the priority is in the VLAN tag: set vlan, or leave vlan_qos out`
// +kubebuilder:validation:XValidation:rule=`has(self.vlan) || !has(self.sriov) || !has(self.sriov.vlan_protocol) || self.sriov.vlan_protocol == ""`,fieldPath=`.sriov.vlan_protocol`,reason=FieldValueForbidden,message=`must come with vlan, because it is the protocol of the VLAN tag: set vlan, or leave vlan_protocol out`
type NetworkOptions struct {
	// Device is the NIC on the node that the interfaces or the host link are made on.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule=`self == "" || (self.matches(r'^[^/:\pZ\pC]+$') && !(self in ['.', '..']) && size(bytes(self)) <= 15)`,message=`must be the name of a NIC: use at most 15 bytes without "/", ":" or white space`
	Device string `json:"host_device,omitempty"`

	// DevicePool is the resource name of a device plugin. Required for sriov.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	DevicePool string `json:"device_pool,omitempty"`

	// VLAN is the VLAN ID of the host link (IEEE 802.1Q). With NetworkType sriov, the NIC
	// adds and removes the tag of each virtual function.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// VXLAN is the VNI of the host link (RFC 7348). It must not be set for NetworkType sriov.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777214
	VXLAN int32 `json:"vxlan,omitempty"`

	// Trunk allows Pods to send frames with VLAN tags into host_device. It is for a
	// ClusterNetwork with AllowedTenants, of NetworkType ipvlan or macvlan, without
	// vlan and vxlan.
	// +optional
	Trunk bool `json:"trunk,omitempty"`

	// Prefix is the first part of the interface's name in the Pod. If it is not set: eth.
	// +optional
	// +kubebuilder:validation:MaxLength=14
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches(r'^[A-Za-z][A-Za-z0-9_-]{0,13}$')`,message=`must be the beginning of interface names: use a letter, then at most 13 letters, digits, "_" or "-"`
	Prefix string `json:"container_prefix,omitempty"`

	// MTU of the Pods' interfaces in bytes. When not set, it is the parent's, less
	// the overhead of VXLAN.
	// +optional
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=9216
	MTU int32 `json:"mtu,omitempty"`

	// CIDR is the IPv4 subnet. Pods get IPv4 addresses of it.
	// +optional
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 4)`,message=`must be an IPv4 subnet with its prefix length, such as "10.0.0.0/24": use net6 for IPv6`
	// +kubebuilder:validation:XValidation:rule=`self == "" || !isCIDR(self) || cidr(self).ip().family() != 4 || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32'].all(s, !cidr(s).containsIP(cidr(self).ip()) && !cidr(self).containsIP(cidr(s).ip()))`,message=`must be outside 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4 and 255.255.255.255/32, which are for special purposes`
	CIDR string `json:"cidr,omitempty"`

	// Pool is the range of dynamic IPv4 addresses. If it is not set: the subnet without its first
	// and last address.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || self.start == "" || (isIP(self.start) && ip(self.start).family() == 4)`,fieldPath=`.start`,message=`must be an IPv4 address, such as "10.0.0.10"`,messageExpression=`'"' + self.start + '": must be an IPv4 address, such as "10.0.0.10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.end) || self.end == "" || (isIP(self.end) && ip(self.end).family() == 4)`,fieldPath=`.end`,message=`must be an IPv4 address, such as "10.0.0.10"`,messageExpression=`'"' + self.end + '": must be an IPv4 address, such as "10.0.0.10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || !has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 4 || ip(self.end).family() != 4 || [[self.start, self.end].map(a, a.split('.').map(o, int(o)))].all(r, [0, 1, 2, 3].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`must not be before start: use start or a later address`,messageExpression=`'\"' + self.end + '\": must not be before start ' + self.start + ': use start or a later address'`
	Pool *IPPool `json:"allocation_pool,omitempty"`

	// Net6 is the IPv6 subnet. Pods get IPv6 addresses of it.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 6)`,message=`must be an IPv6 subnet with its prefix length, such as "fd00::/64": use cidr for IPv4`
	// +kubebuilder:validation:XValidation:rule=`self == "" || !isCIDR(self) || cidr(self).ip().family() != 6 || ['::/80', 'fe80::/10', 'ff00::/8'].all(s, !cidr(s).containsIP(cidr(self).ip()) && !cidr(self).containsIP(cidr(s).ip()))`,message=`must be outside ::/80, fe80::/10 and ff00::/8, which are for special purposes`
	Net6 string `json:"net6,omitempty"`

	// Pool6 is the range of dynamic IPv6 addresses. If it is not set: all of net6.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || self.start == "" || (isIP(self.start) && ip(self.start).family() == 6)`,fieldPath=`.start`,message=`must be an IPv6 address, such as "fd00::10"`,messageExpression=`'"' + self.start + '": must be an IPv6 address, such as "fd00::10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.end) || self.end == "" || (isIP(self.end) && ip(self.end).family() == 6)`,fieldPath=`.end`,message=`must be an IPv6 address, such as "fd00::10"`,messageExpression=`'"' + self.end + '": must be an IPv6 address, such as "fd00::10"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.cidr) || self.cidr == "" || (isCIDR(self.cidr) && cidr(self.cidr).ip().family() == 6)`,fieldPath=`.cidr`,message=`must be an IPv6 subnet with its prefix length, such as "fd00::/80"`,messageExpression=`'"' + self.cidr + '": must be an IPv6 subnet with its prefix length, such as "fd00::/80"'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || !has(self.cidr) || !isIP(self.start) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.start)`,fieldPath=`.start`,message=`must be in the pool's cidr: use an address of it`,messageExpression=`'\"' + self.start + '\": must be in the pool\'s cidr ' + self.cidr + ': use an address of it'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.end) || !has(self.cidr) || !isIP(self.end) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.end)`,fieldPath=`.end`,message=`must be in the pool's cidr: use an address of it`,messageExpression=`'\"' + self.end + '\": must be in the pool\'s cidr ' + self.cidr + ': use an address of it'`
	// +kubebuilder:validation:XValidation:rule=`!has(self.start) || !has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 6 || ip(self.end).family() != 6 || [[string(ip(self.start)), string(ip(self.end))].map(a, (a.startsWith('::') ? '0' : '') + a + (a.endsWith('::') ? '0' : '')).map(a, a.replace('::', [':', ':0:', ':0:0:', ':0:0:0:', ':0:0:0:0:', ':0:0:0:0:0:', ':0:0:0:0:0:0:'][9 - size(a.split(':'))]).split(':').map(h, ('000' + h).substring(size(h) - 1)).map(h, [0, 1, 2, 3].map(i, '0123456789abcdef'.indexOf(h.substring(i, i + 1)))).map(d, d[0] * 4096 + d[1] * 256 + d[2] * 16 + d[3]))].all(r, [0, 1, 2, 3, 4, 5, 6, 7].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3, 4, 5, 6, 7].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`must not be before start: use start or a later address`,messageExpression=`'\"' + self.end + '\": must not be before start ' + self.start + ': use start or a later address'`
	Pool6 *IPPoolV6 `json:"allocation_pool_v6,omitempty"`

	// Routes maps IPv4 destinations to gateways, for every attached Pod.
	// The map is atomic for server-side apply: to track the owners of 100,000 keys,
	// the API server needs longer than a request may take.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule=`self.all(d, isCIDR(d) && cidr(d).ip().family() == 4)`,message=`must have destinations (its keys) that are IPv4 subnets with their prefix length, such as "10.1.0.0/16"`,messageExpression=`'must have destinations (its keys) that are IPv4 subnets with their prefix length, such as "10.1.0.0/16": correct "' + self.filter(d, !isCIDR(d) || cidr(d).ip().family() != 4)[0] + '"'`
	// +kubebuilder:validation:XValidation:rule=`self.all(d, !isCIDR(d) || self.exists_one(e, isCIDR(e) && cidr(e).prefixLength() == cidr(d).prefixLength() && cidr(e).containsIP(cidr(d).ip())))`,message=`must not have two destinations (its keys) that are the same subnet: name each subnet once`,messageExpression=`'must not have two destinations (its keys) that are the same subnet: leave out ' + self.filter(d, isCIDR(d) && !self.exists_one(e, isCIDR(e) && cidr(e).prefixLength() == cidr(d).prefixLength() && cidr(e).containsIP(cidr(d).ip())))[0]`
	Routes map[string]Gateway `json:"routes,omitempty"`

	// Routes6 maps IPv6 destinations to gateways, for every attached Pod.
	// The map is atomic for server-side apply: to track the owners of 100,000 keys,
	// the API server needs longer than a request may take.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule=`self.all(d, isCIDR(d) && cidr(d).ip().family() == 6)`,message=`must have destinations (its keys) that are IPv6 subnets with their prefix length, such as "fd01::/48"`,messageExpression=`'must have destinations (its keys) that are IPv6 subnets with their prefix length, such as "fd01::/48": correct "' + self.filter(d, !isCIDR(d) || cidr(d).ip().family() != 6)[0] + '"'`
	// +kubebuilder:validation:XValidation:rule=`self.all(d, !isCIDR(d) || self.exists_one(e, isCIDR(e) && cidr(e).prefixLength() == cidr(d).prefixLength() && cidr(e).containsIP(cidr(d).ip())))`,message=`must not have two destinations (its keys) that are the same subnet: name each subnet once`,messageExpression=`'must not have two destinations (its keys) that are the same subnet: leave out ' + self.filter(d, isCIDR(d) && !self.exists_one(e, isCIDR(e) && cidr(e).prefixLength() == cidr(d).prefixLength() && cidr(e).containsIP(cidr(d).ip())))[0]`
	Routes6 map[string]GatewayV6 `json:"routes6,omitempty"`

	// StaticPool are the ranges of both families for static addresses. When not set, all
	// addresses of the subnets are allowed. An empty list allows none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	StaticPool []IPRange `json:"static_pool,omitzero"`

	// RTTables is the number of the routing table for the Pods' policy routes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule=`self <= 252 || self >= 256`,message=`must not be one of the kernel's tables 253 to 255: use 0 to 252, or 256 and up`
	RTTables int32 `json:"rt_tables,omitempty"`

	// ConflictProbe probes each address on the network before a Pod gets it, by ARP
	// (RFC 5227) and neighbour discovery (RFC 4862). No Pod gets an address of another
	// machine for an hour. A probe adds 120 ms to the start of a Pod. When not set, it is
	// true for macvlan and false for all other types. Only macvlan and ipvlan support it.
	// +optional
	ConflictProbe *bool `json:"conflict_probe,omitempty"`

	// SourceGuard drops frames that Pods send with a MAC or address that is not their own,
	// or as a router. It compares IPv4, ARP, IPv6 and neighbour discovery with the addresses
	// of the node's Pods, and drops other protocols. It is for networks on a VLAN or VXLAN
	// with NetworkType ipvlan or macvlan. It filters frames that leave the node, and not
	// frames between Pods of one network on one node. All networks on a link must have it.
	// When not set, it is true for TenantNetworks on a VLAN or VXLAN on nodes whose kernel
	// supports it (Linux 5.16), and false otherwise. With true, Pods do not start on nodes
	// whose kernel does not support it.
	// +optional
	SourceGuard *bool `json:"source_guard,omitempty"`

	// SRIOV are settings of the virtual function of each attached Pod. It is for NetworkType
	// sriov, and not for TenantNetworks. A change applies to Pods that start later. When a Pod
	// ends, its function gets back the settings that it had before. A Pod does not start if the
	// driver of its function rejects a setting.
	// +optional
	SRIOV *SRIOVOptions `json:"sriov,omitempty"`

	// Alloc is DANM's IPv4 bitmap. It must be empty in a new network, and is not read.
	// +optional
	// +kubebuilder:validation:MaxLength=1398104
	Alloc string `json:"alloc,omitempty"`

	// Alloc6 is DANM's IPv6 bitmap. It must be empty in a new network, and is not read.
	// +optional
	// +kubebuilder:validation:MaxLength=1398104
	Alloc6 string `json:"alloc6,omitempty"`
}

// SRIOVOptions are settings of virtual functions. The driver of the NIC decides which of them it
// supports.
// +kubebuilder:validation:XValidation:rule=`!has(self.min_tx_rate) || !has(self.max_tx_rate) || self.min_tx_rate <= self.max_tx_rate`,fieldPath=`.min_tx_rate`,message=`must not be above max_tx_rate: use a lower min_tx_rate, or a higher max_tx_rate`
// +kubebuilder:validation:XValidation:rule=`!has(self.promiscuous) || !self.promiscuous || (has(self.trust) && self.trust)`,fieldPath=`.promiscuous`,reason=FieldValueForbidden,message=`must come with trust: true, because drivers ignore or reject it otherwise: set trust to true, or leave promiscuous out`
type SRIOVOptions struct {
	// VLANQoS is the priority in the VLAN tag (IEEE 802.1p), 0 to 7. It requires vlan. When not
	// set, it is 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	VLANQoS int32 `json:"vlan_qos,omitempty"`

	// VLANProtocol is the protocol of the VLAN tag: 802.1q or 802.1ad, in upper or lower case. It
	// requires vlan. When not set, it is 802.1q. Some drivers reject 802.1ad.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.lowerAscii() in ['', '802.1q', '802.1ad']`,message=`must be 802.1q or 802.1ad`
	VLANProtocol string `json:"vlan_protocol,omitempty"`

	// SpoofCheck drops frames that a Pod sends with another source MAC than that of its function.
	// When not set, it is true if the driver supports it.
	// +optional
	SpoofCheck *bool `json:"spoof_check,omitempty"`

	// Trust allows a Pod to change the MAC, the VLAN filters and the promiscuous mode of its
	// function. When not set, it is false if the driver supports it.
	// +optional
	Trust *bool `json:"trust,omitempty"`

	// LinkState is the link state of the function: auto (that of the NIC's port), enable
	// (always up) or disable (always down). When not set, it stays as it is. Some drivers reject
	// it.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'auto', 'enable', 'disable']`,message=`must be auto, enable or disable`
	LinkState string `json:"link_state,omitempty"`

	// MinTxRate is the guaranteed transmit rate of the function in Mbit/s. It must not be above
	// max_tx_rate. When not set, it stays as it is. Some drivers reject it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MinTxRate int32 `json:"min_tx_rate,omitempty"`

	// MaxTxRate is the limit of the function's transmit rate in Mbit/s. When not set, it stays as
	// it is. Most drivers reject a limit above the speed of the NIC.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxTxRate int32 `json:"max_tx_rate,omitempty"`

	// Promiscuous sets the interface in the Pod to promiscuous mode: it receives all frames of
	// its VLAN that the driver passes to a function. It requires trust.
	// +optional
	Promiscuous bool `json:"promiscuous,omitempty"`
}

// Gateway is the IPv4 address of a route's gateway, in the network's cidr.
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:XValidation:rule=`isIP(self) && ip(self).family() == 4`,message=`must be an IPv4 address, such as "10.0.0.1"`
type Gateway string

// GatewayV6 is the IPv6 address of a route's gateway, in the network's net6.
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule=`isIP(self) && ip(self).family() == 6`,message=`must be an IPv6 address, such as "fd00::1"`
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

	// LastIP is DANM's cursor, with or without a prefix length. It must be empty in a new
	// network, and is not read.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	LastIP string `json:"lastIp,omitempty"`
}

// IPPoolV6 is a range of IPv6 addresses: a subnet, two ends, or both.
type IPPoolV6 struct {
	IPPool `json:",inline"`

	// CIDR is the part of net6 with the dynamic addresses.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr,omitempty"`
}

// IPRange is a range of addresses of one family, both ends included.
// +kubebuilder:validation:XValidation:rule=`isIP(self.start)`,fieldPath=`.start`,message=`must be an IPv4 or IPv6 address, such as "10.0.0.10"`,messageExpression=`'\"' + self.start + '\": must be an IPv4 or IPv6 address, such as \"10.0.0.10\"'`
// +kubebuilder:validation:XValidation:rule=`!has(self.end) || self.end == "" || (isIP(self.end) && (!isIP(self.start) || ip(self.start).family() == ip(self.end).family()))`,fieldPath=`.end`,message=`must be an address of the same family as start, such as "10.0.0.20"`,messageExpression=`'\"' + self.end + '\": must be an address of the same family as start, such as \"10.0.0.20\"'`
// +kubebuilder:validation:XValidation:rule=`!has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 4 || ip(self.end).family() != 4 || [[self.start, self.end].map(a, a.split('.').map(o, int(o)))].all(r, [0, 1, 2, 3].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`must not be before start: use start or a later address`,messageExpression=`'\"' + self.end + '\": must not be before start ' + self.start + ': use start or a later address'`
// +kubebuilder:validation:XValidation:rule=`!has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != 6 || ip(self.end).family() != 6 || [[string(ip(self.start)), string(ip(self.end))].map(a, (a.startsWith('::') ? '0' : "") + a + (a.endsWith('::') ? '0' : "")).map(a, a.replace('::', [':', ':0:', ':0:0:', ':0:0:0:', ':0:0:0:0:', ':0:0:0:0:0:', ':0:0:0:0:0:0:'][9 - size(a.split(':'))]).split(':').map(h, ('000' + h).substring(size(h) - 1)).map(h, [0, 1, 2, 3].map(i, '0123456789abcdef'.indexOf(h.substring(i, i + 1)))).map(d, d[0] * 4096 + d[1] * 256 + d[2] * 16 + d[3]))].all(r, [0, 1, 2, 3, 4, 5, 6, 7].all(i, r[0][i] <= r[1][i] || [0, 1, 2, 3, 4, 5, 6, 7].exists(j, j < i && r[0][j] < r[1][j])))`,fieldPath=`.end`,message=`must not be before start: use start or a later address`,messageExpression=`'\"' + self.end + '\": must not be before start ' + self.start + ': use start or a later address'`
type IPRange struct {
	// Start is the first address.
	// +kubebuilder:validation:MaxLength=45
	Start string `json:"start"`

	// End is the last address. If it is not set: Start.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	End string `json:"end,omitempty"`
}
