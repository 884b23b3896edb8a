// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// GiveBack is how long nodes take to give back addresses that no Pod has, once they are
// asked: they look at the network every 5 seconds, and a released address rests for 10.
const GiveBack = 20 * time.Second

// Use is what a change of a network could cut: an interface of a Pod, or addresses
// that a node has taken for Pods to come.
type Use struct {
	// Pod is namespace/name; empty for what a node has taken.
	Pod string
	// Node is the Node's name.
	Node string
	// V4 and V6 are the addresses, invalid when there are none.
	V4, V6 netip.Addr
}

// String says who uses it, for messages.
func (u Use) String() string {
	if u.Pod == "" {
		return "node " + u.Node + " has taken addresses of it for Pods to come"
	}
	return "Pod " + u.Pod + " on node " + u.Node + " is attached to it"
}

// Deletable checks that nobody uses the network. Pods that attach meanwhile are the
// finalizer's matter. The error is an *InvalidError that names one Pod and the count.
func (n *Network) Deletable(uses []Use) error { return Deletable(n.Ref, uses) }

// Deletable is Network.Deletable for a network whose spec may be wrong.
func Deletable(ref Ref, uses []Use) error {
	var f faults
	if len(uses) > 0 {
		f.invalid(field.NewPath("metadata", "name"), ref.Name,
			"the network is in use, "+uses[0].String()+more(len(uses))+": "+wayOut(uses, "delete the Pods first"))
	}
	return f.err(ref.String())
}

// wayOut is what would help: what nodes have taken for Pods to come, they give back when
// it is asked for.
func wayOut(uses []Use, pods string) string {
	for _, u := range uses {
		if u.Pod != "" {
			return pods
		}
	}
	return "try again in " + GiveBack.String() + ", when the nodes have given them back"
}

func more(uses int) string {
	if uses == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", uses-1)
}

// Change checks that a change of a network cuts or corrupts nothing that uses it:
// where it is, what its interfaces are made of, and the addresses in use stay. The
// error is an *InvalidError with all fields.
func (n *Network) Change(to *Network, uses []Use) error {
	if len(uses) == 0 {
		return nil
	}
	c := change{uses: uses, path: field.NewPath("spec", "Options")}
	for _, p := range []struct {
		name    string
		was, is any
	}{
		{"host_device", n.Device, to.Device},
		{"device_pool", n.DevicePool, to.DevicePool},
		{"vlan", n.VLAN, to.VLAN},
		{"vxlan", n.VXLAN, to.VXLAN},
	} {
		c.same(c.path.Child(p.name), p.was, p.is)
	}
	c.same(field.NewPath("spec", "NetworkType"), n.Type, to.Type)
	if n.Trunk && !to.Trunk {
		c.cut(c.path.Child("trunk"), to.Trunk, "the Pods' tagged frames would be dropped", "keep true")
	}
	if to.MTU != 0 && (n.MTU == 0 || to.MTU < n.MTU) {
		c.cut(c.path.Child("mtu"), to.MTU, "a lower mtu would drop the Pods' packets", mtuText(n.MTU))
	}
	c.family("cidr", "allocation_pool", n.V4, to.V4, func(u Use) netip.Addr { return u.V4 })
	c.family("net6", "allocation_pool_v6", n.V6, to.V6, func(u Use) netip.Addr { return u.V6 })
	return c.faults.err(n.Ref.String())
}

// change collects what a change would cut.
type change struct {
	faults faults
	uses   []Use
	path   *field.Path
}

func (c *change) same(path *field.Path, was, is any) {
	if was != is {
		c.cut(path, is, "a change would cut the Pods off", keepText(was))
	}
}

// cut names one use and the number of all.
func (c *change) cut(path *field.Path, value any, why, keep string) {
	c.faults.invalid(path, value, fmt.Sprintf("%s, and %s%s: %s, or %s", why, c.uses[0], more(len(c.uses)), keep, wayOut(c.uses, "detach the Pods first")))
}

// family checks a subnet that was there: one that is new cuts nobody.
func (c *change) family(cidrField, poolField string, was, is *Subnet, of func(Use) netip.Addr) {
	switch {
	case was == nil:
	case is == nil:
		c.cut(c.path.Child(cidrField), "", "without it the Pods' addresses mean nothing", "keep "+was.CIDR.String())
	case was.CIDR != is.CIDR:
		c.cut(c.path.Child(cidrField), is.CIDR.String(), "the Pods' addresses are of "+was.CIDR.String(), "keep it")
	default:
		c.pool(c.path.Child(poolField), was, is, of)
	}
}

// pool: an address of the old range must be in the new one; static addresses may
// have been outside of it all the time.
func (c *change) pool(path *field.Path, was, is *Subnet, of func(Use) netip.Addr) {
	for _, u := range c.uses {
		a := of(u)
		if a.IsValid() && was.inPool(a) && !is.inPool(a) {
			c.faults.invalid(path, is.Start.String()+"-"+is.End.String(),
				fmt.Sprintf("leaves out %s, and %s: use a range that has it, or %s", a, u, wayOut(c.uses, "detach the Pods first")))
			return
		}
	}
}

func (s *Subnet) inPool(a netip.Addr) bool { return !a.Less(s.Start) && !s.End.Less(a) }

func keepText(was any) string {
	if was == "" || was == 0 {
		return "leave it out"
	}
	return fmt.Sprintf("keep %v", was)
}

func mtuText(was int) string {
	if was == 0 {
		return "leave it out"
	}
	return fmt.Sprintf("use %d or more", was)
}
