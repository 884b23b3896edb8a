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

	// LastIP is DANM's cursor; read once to take over a live network.
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
