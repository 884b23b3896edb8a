// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	families := []asked{{"ip", "proutes", "cidr", n.V4, r.V4, r.Proutes}, {"ip6", "proutes6", "net6", n.V6, r.V6, r.Proutes6}}
	for _, a := range families {
		if n.Delegates() {
			a.permitPlugin(&f, n.Type)
		} else {
			a.permit(&f)
		}
	}
	return f.err(n.Ref.String())
}

// asked is what an interface asks of one family, with the names of the fields.
type asked struct {
	ip, proutes, cidr string
	subnet            *Subnet
	address           AddressRequest
	routes            []Route
}

// permitPlugin refuses what cannot be promised for another plugin, which may well give
// an address, but nobody knows which.
func (a asked) permitPlugin(f *faults, plugin string) {
	if a.address.Static.IsValid() {
		f.invalid(field.NewPath(a.ip), a.address.Static.String(), "CNI plugin "+plugin+` manages its addresses itself: use "dynamic" or "none"`)
	}
	if len(a.routes) > 0 {
		f.forbidden(field.NewPath(a.proutes), "CNI plugin "+plugin+" manages its routes itself: leave "+a.proutes+" out")
	}
}

func (a asked) permit(f *faults) {
	if len(a.routes) > 0 && a.address.None() {
		f.forbidden(field.NewPath(a.proutes), "policy routes are for traffic from the interface's own address: ask for one with "+a.ip)
	}
	if a.subnet == nil {
		a.permitNoSubnet(f)
		return
	}
	if a.address.Static.IsValid() {
		a.subnet.permitStatic(f, field.NewPath(a.ip), a.address.Static)
	}
	for _, r := range a.routes {
		if !a.subnet.CIDR.Contains(r.Gateway) {
			f.invalid(field.NewPath(a.proutes).Key(r.Dst.String()), r.Gateway.String(), fmt.Sprintf("is outside the network's %s %s: use a gateway inside", a.cidr, a.subnet.CIDR))
		}
		if r.Gateway == a.address.Static {
			f.invalid(field.NewPath(a.proutes).Key(r.Dst.String()), r.Gateway.String(), "is the interface's own address, asked for with "+a.ip+": use the address of a router")
		}
	}
}

func (a asked) permitNoSubnet(f *faults) {
	path := field.NewPath(a.ip)
	switch {
	case a.address.Static.IsValid():
		f.invalid(path, a.address.Static.String(), fmt.Sprintf("the network has no %s to take the address from: use \"none\"", a.cidr))
	case a.address.Dynamic:
		f.invalid(path, "dynamic", fmt.Sprintf("the network has no %s to take an address from: use \"none\"", a.cidr))
	}
}

func (s *Subnet) permitStatic(f *faults, path *field.Path, a netip.Addr) {
	switch {
	case !s.CIDR.Contains(a):
		f.invalid(path, a.String(), fmt.Sprintf("is outside the network's subnet %s: use an address inside", s.CIDR))
	case hasBroadcast(s.CIDR) && (a == first(s.CIDR) || a == last(s.CIDR)):
		f.invalid(path, a.String(), fmt.Sprintf("is the network or broadcast address of %s: use an address between", s.CIDR))
	case s.isGateway(a):
		f.invalid(path, a.String(), "is a gateway of the network's routes, and a Pod that had it would get the others' packets: use another address")
	case !s.HasStatic(a):
		f.invalid(path, a.String(), "is outside the network's static_pool, which "+s.staticRule())
	}
}

func (s *Subnet) isGateway(a netip.Addr) bool {
	return slices.ContainsFunc(s.Routes, func(r Route) bool { return r.Gateway == a })
}

// HasStatic reports whether the network lets a Pod name this address of the subnet.
// Reserved addresses are another matter.
func (s *Subnet) HasStatic(a netip.Addr) bool {
	return s.Static == nil || slices.ContainsFunc(s.Static, func(r AddrRange) bool {
		return !a.Less(r.Start) && !r.End.Less(a)
	})
}

// staticRule says which static addresses there are, for messages.
func (s *Subnet) staticRule() string {
	if len(s.Static) == 0 {
		return `has none of this family: use "dynamic"`
	}
	const named = 4
	var texts []string
	for _, r := range s.Static[:min(len(s.Static), named)] {
		texts = append(texts, r.String())
	}
	rule := "is " + strings.Join(texts, ", ")
	if rest := len(s.Static) - named; rest > 0 {
		rule += fmt.Sprintf(" and %d more", rest)
	}
	return rule + ": use an address inside"
}
