// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Allows reports whether Pods of the namespace may attach to the network.
func (n *Network) Allows(namespace string) bool {
	if n.Ref.Namespace != "" {
		return n.Ref.Namespace == namespace
	}
	return len(n.AllowedTenants) == 0 || slices.Contains(n.AllowedTenants, namespace)
}

// Permit checks that a Pod of the namespace may have what it requests of the
// network: the tenant, and addresses and policy routes that the network can
// give. The error is an *InvalidError whose paths are the annotation's fields.
func (n *Network) Permit(namespace string, r InterfaceRequest) error {
	var f faults
	if !n.Allows(namespace) {
		f.forbidden(field.NewPath("spec", "AllowedTenants"), fmt.Sprintf("Pods of namespace %s may not attach: use another network, or have the namespace added", namespace))
	}
	n.permitFamily(&f, "ip", "proutes", "cidr", n.V4, r.V4, r.Proutes)
	n.permitFamily(&f, "ip6", "proutes6", "net6", n.V6, r.V6, r.Proutes6)
	return f.err(n.Ref.String())
}

func (n *Network) permitFamily(f *faults, ip, proutes, cidr string, s *Subnet, a AddressRequest, routes []Route) {
	path := field.NewPath(ip)
	if len(routes) > 0 && a.None() && !n.Delegates() {
		f.forbidden(field.NewPath(proutes), "policy routes are for traffic from the interface's own address: ask for one with "+ip)
	}
	if s == nil {
		n.permitNoSubnet(f, path, cidr, a)
		return
	}
	if a.Static.IsValid() {
		s.permitStatic(f, path, a.Static)
	}
	for _, r := range routes {
		if !s.CIDR.Contains(r.Gateway) {
			f.invalid(field.NewPath(proutes).Key(r.Dst.String()), r.Gateway.String(), fmt.Sprintf("is outside the network's %s %s: use a gateway inside", cidr, s.CIDR))
		}
	}
}

// permitNoSubnet: a delegate's own address management may well give an address,
// but nobody can promise which.
func (n *Network) permitNoSubnet(f *faults, path *field.Path, cidr string, a AddressRequest) {
	switch {
	case a.Static.IsValid():
		f.invalid(path, a.Static.String(), fmt.Sprintf("the network has no %s to take the address from: use \"none\"", cidr))
	case a.Dynamic && !n.Delegates():
		f.invalid(path, "dynamic", fmt.Sprintf("the network has no %s to take an address from: use \"none\"", cidr))
	}
}

func (s *Subnet) permitStatic(f *faults, path *field.Path, a netip.Addr) {
	switch {
	case !s.CIDR.Contains(a):
		f.invalid(path, a.String(), fmt.Sprintf("is outside the network's subnet %s: use an address inside", s.CIDR))
	case hasBroadcast(s.CIDR) && (a == first(s.CIDR) || a == last(s.CIDR)):
		f.invalid(path, a.String(), fmt.Sprintf("is the network or broadcast address of %s: use an address between", s.CIDR))
	}
}
