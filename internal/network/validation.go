// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// CheckRequest checks that a Pod of the namespace may have what it requests of the
// network: the tenant, and addresses and policy routes that the network can
// give. The error is an *InvalidError whose paths are the annotation's fields.
func (n *Network) CheckRequest(namespace string, r InterfaceRequest) error {
	var f faults
	if !n.Allows(namespace) {
		f.forbidden(field.NewPath("spec", "AllowedTenants"), fmt.Sprintf("Pods of namespace %s may not attach: use another network, or have the namespace added", namespace))
	}
	families := []familyRequest{{"ip", "proutes", "cidr", n.V4, r.V4, r.Proutes}, {"ip6", "proutes6", "net6", n.V6, r.V6, r.Proutes6}}
	for _, a := range families {
		if n.Delegates() {
			a.checkDelegated(&f, n.Type)
		} else {
			a.check(&f)
		}
	}
	return f.err(n.Ref.String())
}

// familyRequest is what an interface asks of one family, with the names of the fields.
type familyRequest struct {
	ip, proutes, cidr string
	subnet            *Subnet
	address           AddressRequest
	routes            []Route
}

func (a familyRequest) check(f *faults) {
	if len(a.routes) > 0 && a.address.None() {
		f.forbidden(field.NewPath(a.proutes), "policy routes are for traffic from the interface's own address: ask for one with "+a.ip)
	}
	if a.subnet == nil {
		a.checkWithoutSubnet(f)
		return
	}
	if a.address.Static.IsValid() {
		a.subnet.checkStatic(f, field.NewPath(a.ip), a.address.Static)
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

func (a familyRequest) checkWithoutSubnet(f *faults) {
	path := field.NewPath(a.ip)
	switch {
	case a.address.Static.IsValid():
		f.invalid(path, a.address.Static.String(), fmt.Sprintf("the network has no %s to take the address from: use \"none\"", a.cidr))
	case a.address.Dynamic:
		f.invalid(path, "dynamic", fmt.Sprintf("the network has no %s to take an address from: use \"none\"", a.cidr))
	}
}

// checkDelegated refuses what cannot be promised for another plugin, which may well give
// an address, but nobody knows which.
func (a familyRequest) checkDelegated(f *faults, plugin string) {
	if a.address.Static.IsValid() {
		f.invalid(field.NewPath(a.ip), a.address.Static.String(), "CNI plugin "+plugin+` manages its addresses itself: use "dynamic" or "none"`)
	}
	if len(a.routes) > 0 {
		f.forbidden(field.NewPath(a.proutes), "CNI plugin "+plugin+" manages its routes itself: leave "+a.proutes+" out")
	}
}

func (s *Subnet) checkStatic(f *faults, path *field.Path, a netip.Addr) {
	switch {
	case !s.CIDR.Contains(a):
		f.invalid(path, a.String(), fmt.Sprintf("is outside the network's subnet %s: use an address inside", s.CIDR))
	case hasBroadcast(s.CIDR) && (a == firstAddr(s.CIDR) || a == lastAddr(s.CIDR)):
		f.invalid(path, a.String(), fmt.Sprintf("is the network or broadcast address of %s: use an address between", s.CIDR))
	case s.isGateway(a):
		f.invalid(path, a.String(), "is a gateway of the network's routes, and a Pod that had it would get the others' packets: use another address")
	case !s.AllowsStatic(a):
		f.invalid(path, a.String(), "is outside the network's static_pool, which "+s.staticRule())
	}
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

// checkNodeAddresses refuses static addresses that a node has; node may be nil. The node
// daemon refuses them when it claims.
func (n *Network) checkNodeAddresses(r InterfaceRequest, node func(netip.Addr) bool) error {
	var f faults
	for _, a := range []struct {
		field  string
		static netip.Addr
	}{{"ip", r.V4.Static}, {"ip6", r.V6.Static}} {
		if node != nil && a.static.IsValid() && node(a.static) {
			f.invalid(field.NewPath(a.field), a.static.String(), "is a node's own, and a Pod that had it would get the node's packets: use another address")
		}
	}
	return f.err(n.Ref.String())
}

// CheckAssignment checks that a tenant has not chosen what runs on the nodes, or what
// its network rides on there: a plugin runs as root, and a NIC, VLAN or VXLAN may
// be another tenant's. Admission assigns all of these from a TenantConfig, and
// says so in an annotation that tenants cannot write; what does not agree with it
// is the tenant's own wish. The other kinds are not restricted. The error is an
// *InvalidError with all fields; the object itself is still a valid one, whose
// addresses can be given back.
func (n *Network) CheckAssignment() error {
	if n.Ref.Kind != v1.KindTenantNetwork {
		return nil
	}
	var f faults
	place := n.assignedSlot(&f)
	spec := field.NewPath("spec")
	options := spec.Child("Options")
	if n.Delegates() && (place.Kind != SlotPlugin || place.Device != n.Type) {
		f.invalid(spec.Child("NetworkType"), n.Type,
			"is a CNI plugin that no TenantConfig has assigned: use ipvlan or macvlan, or ask for a ClusterNetwork")
	}
	want := place.Parent()
	for _, o := range []struct {
		name      string
		value     any
		agrees    bool
		wantValue any
	}{
		{"host_device", n.Device, n.Device == want.Device, want.Device},
		{"device_pool", n.DevicePool, n.DevicePool == want.DevicePool, want.DevicePool},
		{"vlan", n.VLAN, n.VLAN == want.VLAN, want.VLAN},
		{"vxlan", n.VXLAN, n.VXLAN == want.VXLAN, want.VXLAN},
	} {
		if !o.agrees {
			f.invalid(options.Child(o.name), o.value, assignmentRule(o.wantValue, n.Assignment))
		}
	}
	return f.err(n.Ref.String())
}

// assignmentRule says what an attribute should be.
func assignmentRule(want any, assignment string) string {
	if assignment == "" {
		return "is assigned from a TenantConfig when the network is created, and this was not: make the network anew without it, or ask for a ClusterNetwork that allows this namespace"
	}
	if want == "" || want == 0 {
		return "is not what was assigned from the TenantConfig, " + assignment + ": leave it out"
	}
	return fmt.Sprintf("is not what was assigned from the TenantConfig, %s: use %v", assignment, want)
}

// assignedSlot reads the assignment; the zero Place stands for none.
func (n *Network) assignedSlot(f *faults) TenantSlot {
	if n.Assignment == "" {
		return TenantSlot{}
	}
	a, err := ParseAssignment(n.Assignment)
	if err != nil {
		f.invalid(field.NewPath("metadata", "annotations").Key(v1.AssignedAnnotation), n.Assignment, err.Error())
	}
	return a.Slot
}

// Usage is what a change of a network could cut: an interface of a Pod, or addresses
// that a node has taken for Pods to come.
type Usage struct {
	// Pod is namespace/name; empty for what a node has taken.
	Pod string
	// Node is the Node's name.
	Node string
	// V4 and V6 are the addresses, invalid when there are none.
	V4, V6 netip.Addr
}

// String says who uses it, for messages.
func (u Usage) String() string {
	if u.Pod == "" {
		return "node " + u.Node + " has taken addresses of it for Pods to come"
	}
	return "Pod " + u.Pod + " on node " + u.Node + " is attached to it"
}

// CheckDelete checks that nobody uses the network. Pods that attach meanwhile are the
// finalizer's matter. The error is an *InvalidError that names one Pod and the count.
func (n *Network) CheckDelete(uses []Usage) error { return CheckDelete(n.Ref, uses) }

// CheckDelete is Network.Deletable for a network whose spec may be wrong.
func CheckDelete(ref Ref, uses []Usage) error {
	var f faults
	if len(uses) > 0 {
		f.invalid(field.NewPath("metadata", "name"), ref.Name,
			"the network is in use, "+uses[0].String()+andMore(len(uses))+": "+remedy(uses, "delete the Pods first"))
	}
	return f.err(ref.String())
}

// CheckUpdate checks that a change of a network cuts or corrupts nothing that uses it:
// where it is, what its interfaces are made of, and the addresses in use stay. The
// error is an *InvalidError with all fields.
func (n *Network) CheckUpdate(to *Network, uses []Usage) error {
	if len(uses) == 0 {
		return nil
	}
	c := updateCheck{uses: uses, path: field.NewPath("spec", "Options")}
	for _, p := range []struct {
		name    string
		was, is any
	}{
		{"host_device", n.Device, to.Device},
		{"device_pool", n.DevicePool, to.DevicePool},
		{"vlan", n.VLAN, to.VLAN},
		{"vxlan", n.VXLAN, to.VXLAN},
	} {
		c.requireSame(c.path.Child(p.name), p.was, p.is)
	}
	c.requireSame(field.NewPath("spec", "NetworkType"), n.Type, to.Type)
	if n.Trunk && !to.Trunk {
		c.addDisruption(c.path.Child("trunk"), to.Trunk, "the Pods' tagged frames would be dropped", "keep true")
	}
	if to.MTU != 0 && (n.MTU == 0 || to.MTU < n.MTU) {
		c.addDisruption(c.path.Child("mtu"), to.MTU, "a lower mtu would drop the Pods' packets", mtuHint(n.MTU))
	}
	c.checkSubnet("cidr", "allocation_pool", n.V4, to.V4, func(u Usage) netip.Addr { return u.V4 })
	c.checkSubnet("net6", "allocation_pool_v6", n.V6, to.V6, func(u Usage) netip.Addr { return u.V6 })
	return c.faults.err(n.Ref.String())
}

// updateCheck collects what a change would cut.
type updateCheck struct {
	faults faults
	uses   []Usage
	path   *field.Path
}

func (c *updateCheck) requireSame(path *field.Path, was, is any) {
	if was != is {
		c.addDisruption(path, is, "a change would cut the Pods off", keepHint(was))
	}
}

func keepHint(was any) string {
	if was == "" || was == 0 {
		return "leave it out"
	}
	return fmt.Sprintf("keep %v", was)
}

func mtuHint(was int) string {
	if was == 0 {
		return "leave it out"
	}
	return fmt.Sprintf("use %d or more", was)
}

// checkSubnet checks a subnet that was there: one that is new cuts nobody.
func (c *updateCheck) checkSubnet(cidrField, poolField string, was, is *Subnet, of func(Usage) netip.Addr) {
	switch {
	case was == nil:
	case is == nil:
		c.addDisruption(c.path.Child(cidrField), "", "without it the Pods' addresses mean nothing", "keep "+was.CIDR.String())
	case was.CIDR != is.CIDR:
		c.addDisruption(c.path.Child(cidrField), is.CIDR.String(), "the Pods' addresses are of "+was.CIDR.String(), "keep it")
	default:
		c.checkPool(c.path.Child(poolField), was, is, of)
	}
}

// checkPool: an address of the old range must be in the new one; static addresses may
// have been outside of it all the time.
func (c *updateCheck) checkPool(path *field.Path, was, is *Subnet, of func(Usage) netip.Addr) {
	for _, u := range c.uses {
		a := of(u)
		if a.IsValid() && was.inPool(a) && !is.inPool(a) {
			c.faults.invalid(path, is.Start.String()+"-"+is.End.String(),
				fmt.Sprintf("leaves out %s, and %s: use a range that has it, or %s", a, u, remedy(c.uses, "detach the Pods first")))
			return
		}
	}
}

// addDisruption names one use and the number of all.
func (c *updateCheck) addDisruption(path *field.Path, value any, why, keep string) {
	c.faults.invalid(path, value, fmt.Sprintf("%s, and %s%s: %s, or %s", why, c.uses[0], andMore(len(c.uses)), keep, remedy(c.uses, "detach the Pods first")))
}

func andMore(uses int) string {
	if uses == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", uses-1)
}

// ReclaimDelay is how long nodes take to give back addresses that no Pod has, once they are
// asked: they look at the network every 5 seconds, and a released address rests for 10.
const ReclaimDelay = 20 * time.Second

// remedy is what would help: what nodes have taken for Pods to come, they give back when
// it is asked for.
func remedy(uses []Usage, pods string) string {
	for _, u := range uses {
		if u.Pod != "" {
			return pods
		}
	}
	return "try again in " + ReclaimDelay.String() + ", when the nodes have given them back"
}
