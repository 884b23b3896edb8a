// SPDX-License-Identifier: Apache-2.0

package v1

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
