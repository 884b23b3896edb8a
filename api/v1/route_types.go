// SPDX-License-Identifier: Apache-2.0

package v1

// Gateway is the IPv4 address that a route leads to, inside the network's cidr.
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:XValidation:rule=`isIP(self) && ip(self).family() == 4`,message=`a gateway is an IPv4 address, such as "10.0.0.1"`
type Gateway string

// GatewayV6 is the IPv6 address that a route leads to, inside the network's net6.
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule=`isIP(self) && ip(self).family() == 6`,message=`a gateway is an IPv6 address, such as "fd00::1"`
type GatewayV6 string
