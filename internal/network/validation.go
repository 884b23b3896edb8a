// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// CheckRequest checks that a Pod of the namespace may attach to the network with the addresses and
// policy routes that it requests. The error is an *InvalidError whose paths are the fields of the
// annotation.
func CheckRequest(n *Network, namespace string, r InterfaceRequest) error {
	var f faults
	if !n.Allows(namespace) {
		f.forbidden(field.NewPath("spec", "AllowedTenants"), fmt.Sprintf("must contain the Pod's namespace %s: use another network, or ask a netadmin to add it", namespace))
	}
	requests := []familyRequest{{"ip", "proutes", "cidr", n.V4, r.V4, r.Proutes}, {"ip6", "proutes6", "net6", n.V6, r.V6, r.Proutes6}}
	for _, a := range requests {
		if n.Delegates() {
			a.checkDelegated(&f, n.Type)
		} else {
			a.check(&f, n.Table)
		}
	}
	return f.err(n.Ref.String())
}

// familyRequest is the part of an interface request for one address family, with the names of the
// fields.
type familyRequest struct {
	ip, proutes, cidr string
	subnet            *Subnet
	address           AddressRequest
	routes            []Route
}

func (a familyRequest) check(f *faults, table int) {
	if len(a.routes) > 0 && table == 0 {
		f.forbidden(field.NewPath(a.proutes), "must come with rt_tables in the network, which is the routing table of policy routes: ask a netadmin to set it, or leave "+a.proutes+" out")
	}
	if len(a.routes) > 0 && a.address.None() {
		f.forbidden(field.NewPath(a.proutes), "must come with an address of the interface, because policy routes are for traffic from it: request one with "+a.ip)
	}
	if a.subnet == nil {
		a.checkWithoutSubnet(f)
		return
	}
	if a.address.Static.IsValid() {
		checkStatic(f, field.NewPath(a.ip), a.subnet, a.address.Static)
	}
	for _, r := range a.routes {
		if !a.subnet.CIDR.Contains(r.Gateway) {
			f.invalid(field.NewPath(a.proutes).Key(r.Dst.String()), r.Gateway.String(), fmt.Sprintf("must be in the network's %s %s: use a gateway in it", a.cidr, a.subnet.CIDR))
		}
		if r.Gateway == a.address.Static {
			f.invalid(field.NewPath(a.proutes).Key(r.Dst.String()), r.Gateway.String(), "must not be the interface's own address, which "+a.ip+" requests: use the address of a router")
		}
	}
}

func (a familyRequest) checkWithoutSubnet(f *faults) {
	path := field.NewPath(a.ip)
	switch {
	case a.address.Static.IsValid():
		f.invalid(path, a.address.Static.String(), fmt.Sprintf("must be \"none\", because the network has no %[2]s: leave %[1]s out, or use a network with a %[2]s", a.ip, a.cidr))
	case a.address.Dynamic:
		f.invalid(path, "dynamic", fmt.Sprintf("must be \"none\", because the network has no %[2]s: leave %[1]s out, or use a network with a %[2]s", a.ip, a.cidr))
	}
}

// checkDelegated rejects static addresses and policy routes: another plugin chooses the address.
func (a familyRequest) checkDelegated(f *faults, plugin string) {
	if a.address.Static.IsValid() {
		f.invalid(field.NewPath(a.ip), a.address.Static.String(), "must be \"dynamic\" or \"none\", because the CNI plugin "+plugin+" manages addresses itself")
	}
	if len(a.routes) > 0 {
		f.forbidden(field.NewPath(a.proutes), "must not be set, because the CNI plugin "+plugin+" manages routes itself: leave "+a.proutes+" out")
	}
}

func checkStatic(f *faults, path *field.Path, s *Subnet, a netip.Addr) {
	switch {
	case !s.CIDR.Contains(a):
		f.invalid(path, a.String(), fmt.Sprintf("must be in the network's subnet %s: use an address in it", s.CIDR))
	case s.isEnd(a):
		f.invalid(path, a.String(), fmt.Sprintf("must not be the network or broadcast address of %s: use an address between them", s.CIDR))
	case s.isGateway(a):
		f.invalid(path, a.String(), "must not be a gateway of the network's routes, because the Pod would get the packets of other Pods: use another address")
	case !s.AllowsStatic(a):
		f.invalid(path, a.String(), "must be in the network's static_pool, which "+staticPoolText(s))
	}
}

// staticPoolText describes the static pool in messages.
func staticPoolText(s *Subnet) string {
	if len(s.Static) == 0 {
		return `has no address of this family: use "dynamic"`
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
	return rule + ": use an address in it"
}

// CheckPools checks that each pool has an address that a Pod can get: not the network's or the broadcast
// address, and no gateway. Stored networks are not checked: a static address may be all that they need.
func CheckPools(n *Network) error {
	var f faults
	for _, p := range []struct {
		field  string
		subnet *Subnet
	}{{"allocation_pool", n.V4}, {"allocation_pool_v6", n.V6}} {
		if p.subnet != nil && !p.subnet.hasUsable(p.subnet.Start, p.subnet.End) {
			f.invalid(optionPath(p.field), p.subnet.Start.String()+"-"+p.subnet.End.String(),
				fmt.Sprintf("must have an address that a Pod can get, which the network, broadcast and gateway addresses of %s are not: use a larger range", p.subnet.CIDR))
		}
	}
	return f.err(n.Ref.String())
}

// CheckAssignment checks that a TenantNetwork has only the plugin, NIC, VLAN and VXLAN that
// admission assigned from a TenantConfig: a plugin runs as root on the nodes, and a NIC, VLAN or VXLAN
// may belong to another tenant. Admission records the assignment in an annotation that tenants cannot
// write. The other kinds are not restricted. The error is an *InvalidError with all fields. The
// object is valid apart from it, so that its addresses can be released.
func CheckAssignment(n *Network) error {
	if n.Ref.Kind != v1.KindTenantNetwork {
		return nil
	}
	var f faults
	slot := assignedSlot(&f, n)
	spec := field.NewPath("spec")
	options := spec.Child("Options")
	if n.Delegates() && (slot.Kind != SlotPlugin || slot.Device != n.Type) {
		f.invalid(spec.Child("NetworkType"), n.Type,
			"must be a type that a TenantConfig assigns: use ipvlan or macvlan, or ask a netadmin for a ClusterNetwork")
	}
	for _, c := range slot.Parent().ChangesTo(n.parent()) {
		f.invalid(options.Child(c.Field), c.Is, assignmentRule(c.Was, n.Assignment))
	}
	return f.err(n.Ref.String())
}

// assignmentRule is the rule for an attribute with the assigned value.
func assignmentRule(assigned any, assignment string) string {
	if assignment == "" {
		return "must be assigned from a TenantConfig when the network is created, and nothing is assigned: delete the network and create it without this field, or ask a netadmin for a ClusterNetwork that allows this namespace"
	}
	if assigned == "" || assigned == 0 {
		return "must be as assigned from the TenantConfig, " + assignment + ": leave it out"
	}
	return fmt.Sprintf("must be as assigned from the TenantConfig, %s: use %v", assignment, assigned)
}

// assignedSlot parses the assignment, and returns the zero TenantSlot if there is none.
func assignedSlot(f *faults, n *Network) TenantSlot {
	if n.Assignment == "" {
		return TenantSlot{}
	}
	a, err := ParseAssignment(n.Assignment)
	if err != nil {
		f.invalid(field.NewPath("metadata", "annotations").Key(v1.AssignedAnnotation), n.Assignment, err.Error())
	}
	return a.Slot
}

// Usage is a use of a network that a change could break: an interface of a Pod, or the addresses
// that a node has pre-allocated.
type Usage struct {
	// Pod is namespace/name; empty for pre-allocated addresses.
	Pod string
	// Node is the Node's name.
	Node string
	// V4 and V6 are the addresses, not valid if there are none.
	V4, V6 netip.Addr
	// DanmEp is namespace/name of a DanmEp that no program removes, because its Pod does not exist and
	// another program has written it; empty for others.
	DanmEp string
	// PodState is whether the Pod ends.
	PodState PodState
}

// PodState is whether an attached Pod ends.
type PodState int

// States of an attached Pod.
const (
	PodRuns        PodState = iota // or may run
	PodTerminating                 // it has a deletionTimestamp
	PodGone                        // it does not exist, and its node has yet to detach it
)

// String describes the use in messages.
func (u Usage) String() string {
	if u.DanmEp != "" {
		return "DanmEp " + u.DanmEp + " is left over from Pod " + u.Pod + ", which does not exist"
	}
	if u.Pod == "" {
		return "node " + u.Node + " has pre-allocated addresses of it"
	}
	switch u.PodState {
	case PodGone:
		return "node " + u.Node + " has not yet detached Pod " + u.Pod + ", which is gone"
	case PodTerminating:
		return "Pod " + u.Pod + " on node " + u.Node + " is attached to it until it has terminated"
	}
	return "Pod " + u.Pod + " on node " + u.Node + " is attached to it"
}

// CheckDelete checks that the network is not in use; its spec need not be valid. The finalizer
// covers Pods that attach at the same time. The error is an *InvalidError that names one Pod and the
// count.
func CheckDelete(ref Ref, uses []Usage) error {
	var f faults
	if len(uses) > 0 {
		f.invalid(field.NewPath("metadata", "name"), ref.Name,
			"must not be in use when it is deleted, but "+uses[0].String()+andMore(len(uses))+": "+remedy(uses))
	}
	return f.err(ref.String())
}

// CheckUpdate checks that the change of a network breaks no use of it: its link and backend stay, and
// its subnets and pools keep the addresses in use. The error is an *InvalidError with all fields.
func CheckUpdate(from, to *Network, uses []Usage) error {
	if len(uses) == 0 {
		return nil
	}
	c := updateCheck{uses: uses, path: field.NewPath("spec", "Options")}
	for _, p := range from.parent().ChangesTo(to.parent()) {
		c.requireSame(c.path.Child(p.Field), p.Was, p.Is)
	}
	c.requireSame(field.NewPath("spec", "NetworkType"), from.Type, to.Type)
	if from.Trunk && !to.Trunk {
		c.addDisruption(c.path.Child("trunk"), to.Trunk, "must stay true, because the Pods' tagged frames would be dropped", "keep true")
	}
	if to.MTU != 0 && (from.MTU == 0 || to.MTU < from.MTU) {
		c.addDisruption(c.path.Child("mtu"), to.MTU, "must not become lower, because the Pods' packets would be dropped", mtuHint(from.MTU))
	}
	c.checkSubnet("cidr", "allocation_pool", "routes", from.V4, to.V4, func(u Usage) netip.Addr { return u.V4 })
	c.checkSubnet("net6", "allocation_pool_v6", "routes6", from.V6, to.V6, func(u Usage) netip.Addr { return u.V6 })
	return c.faults.err(from.Ref.String())
}

// updateCheck collects the faults of a change.
type updateCheck struct {
	faults faults
	uses   []Usage
	path   *field.Path
}

func (c *updateCheck) requireSame(path *field.Path, was, is any) {
	if was != is {
		c.addDisruption(path, is, "must stay the same, because a change would disconnect the Pods", keepHint(was))
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

// checkSubnet checks the change of a subnet that existed. A new subnet breaks no use.
func (c *updateCheck) checkSubnet(cidrField, poolField, routesField string, was, is *Subnet, of func(Usage) netip.Addr) {
	switch {
	case was == nil:
	case is == nil:
		c.addDisruption(c.path.Child(cidrField), "", "must stay, because the Pods have addresses of it", "keep "+was.CIDR.String())
	case is.CIDR.Bits() > was.CIDR.Bits() || !is.CIDR.Contains(was.CIDR.Addr()):
		c.addDisruption(c.path.Child(cidrField), is.CIDR.String(),
			"must contain "+was.CIDR.String()+", because the Pods have addresses of it", "use it or a wider one")
	default:
		if is.CIDR != was.CIDR {
			c.checkEnds(c.path.Child(cidrField), is, of)
		}
		c.checkPool(c.path.Child(poolField), was, is, of)
		c.checkGateways(c.path.Child(routesField), was, is, of)
	}
}

// checkEnds checks that no used address is the network or the broadcast address of a wider subnet. A
// subnet of one or two addresses has neither.
func (c *updateCheck) checkEnds(path *field.Path, is *Subnet, of func(Usage) netip.Addr) {
	for _, u := range c.uses {
		if a := of(u); is.isEnd(a) {
			c.faults.invalid(path, is.CIDR.String(),
				fmt.Sprintf("must not begin or end with %s, because %s: use a wider subnet, or %s", a, u, remedy(c.uses)))
			return
		}
	}
}

// checkPool checks that the new range has the used addresses of the old range. Static addresses may
// be outside of both.
func (c *updateCheck) checkPool(path *field.Path, was, is *Subnet, of func(Usage) netip.Addr) {
	for _, u := range c.uses {
		a := of(u)
		if a.IsValid() && was.inPool(a) && !is.inPool(a) {
			c.faults.invalid(path, is.Start.String()+"-"+is.End.String(),
				fmt.Sprintf("must contain %s, because %s: use a range with it, or %s", a, u, remedy(c.uses)))
			return
		}
	}
}

// checkGateways checks that no used address becomes the gateway of a route: its Pod would get the
// packets of others.
func (c *updateCheck) checkGateways(path *field.Path, was, is *Subnet, of func(Usage) netip.Addr) {
	for _, r := range is.Routes {
		i := slices.IndexFunc(c.uses, func(u Usage) bool { return of(u) == r.Gateway })
		if i >= 0 && !was.isGateway(r.Gateway) {
			c.faults.invalid(path.Key(r.Dst.String()), r.Gateway.String(),
				fmt.Sprintf("must not be an address in use, because %s: use the address of a router, or %s", c.uses[i], remedy(c.uses)))
		}
	}
}

// addDisruption adds a fault that names one use and the number of all.
func (c *updateCheck) addDisruption(path *field.Path, value any, rule, keep string) {
	c.faults.invalid(path, value, fmt.Sprintf("%s, and %s%s: %s, or %s", rule, c.uses[0], andMore(len(c.uses)), keep, remedy(c.uses)))
}

func andMore(uses int) string {
	if uses == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", uses-1)
}

// ReclaimDelay is the time that nodes need to return pre-allocated addresses after a reclaim request:
// they read the network every 5 seconds, and the cooldown of a released address is 10 seconds.
const ReclaimDelay = 20 * time.Second

// remedy returns the step that frees the network: to delete a leftover DanmEp that a message names, or the
// Pods that use it, and otherwise to wait for the nodes, which detach Pods that are gone, and return
// pre-allocated addresses on request.
func remedy(uses []Usage) string {
	if uses[0].DanmEp != "" {
		return "delete the DanmEp " + uses[0].DanmEp + " first"
	}
	switch uses[0].PodState {
	case PodGone:
		return "try again, and check node " + uses[0].Node + " if that does not help"
	case PodTerminating:
		return "try again when the Pods are gone"
	}
	for _, u := range uses {
		if u.Pod != "" {
			return "delete the Pods first"
		}
	}
	return "try again in " + ReclaimDelay.String() + ", when the nodes have returned them"
}
