// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// VTEPs are the addresses that the other nodes receive VXLAN at, by the name of
// their NIC. A nil map says that they are not known, which is not the same as
// none.
type VTEPs map[string][]netip.Addr

// SameVTEPs reports whether two lists of a node's NICs have the same names and
// addresses, which is all that other nodes need: a NIC without any is nothing to them,
// and neither are speeds.
func SameVTEPs(a, b []v1.NIC) bool {
	silent := func(n v1.NIC) bool { return len(n.Addresses) == 0 }
	a = slices.DeleteFunc(slices.Clone(a), silent)
	b = slices.DeleteFunc(slices.Clone(b), silent)
	return slices.EqualFunc(a, b, func(a, b v1.NIC) bool { return a.Name == b.Name && slices.Equal(a.Addresses, b.Addresses) })
}

// PeerVTEPs reads the first global address of every NIC of every node but self, each
// once. A node that claims another's address takes nothing from it: frames to that
// address go to the host that has it, as before.
func PeerVTEPs(nodes []v1.NodeNetwork, self string) VTEPs {
	peers := VTEPs{}
	for i := range nodes {
		if nodes[i].Name == self {
			continue
		}
		for _, nic := range nodes[i].Status.NICs {
			if a, ok := firstAddress(nic.Addresses); ok && !slices.Contains(peers[nic.Name], a) {
				peers[nic.Name] = append(peers[nic.Name], a)
			}
		}
	}
	for _, addrs := range peers {
		slices.SortFunc(addrs, netip.Addr.Compare)
	}
	return peers
}

// Ranges are where a netadmin says that VTEPs are, by the name of their NIC.
type Ranges map[string][]netip.Prefix

// accepted splits off the VTEPs that do not count: a node writes its own NodeNetwork, and
// one that was taken over could have the others send to any address. On a NIC with ranges
// they decide, on another the subnets that this node has there. VTEPs on NICs that this node
// does not have are nothing that it sends to.
func (v VTEPs) accepted(state *State, ranges Ranges) (accepted, refused VTEPs) {
	if v == nil {
		return nil, nil
	}
	accepted, refused = VTEPs{}, VTEPs{}
	for name, addrs := range v {
		nic, here := state.nic(name)
		within := ranges[name]
		if here && within == nil {
			within = nic.Addresses
		}
		for _, a := range addrs {
			in := func(p netip.Prefix) bool { return p.Contains(a) }
			if !here && within == nil || slices.ContainsFunc(within, in) {
				accepted[name] = append(accepted[name], a)
			} else {
				refused[name] = append(refused[name], a)
			}
		}
	}
	return accepted, refused
}

// ConditionVTEPsAccepted is the condition of a NodeNetwork that says whether all other
// nodes' VTEPs count on this node.
const ConditionVTEPsAccepted = "VTEPsAccepted"

// vtepsAccepted makes the condition, without times. It names NICs that have VXLANs and no
// address: all nodes would write what one of them says.
func (p *Plan) vtepsAccepted(refused VTEPs) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionVTEPsAccepted, Status: metav1.ConditionTrue, Reason: "InRange",
		Message: "all VTEPs are where they are expected",
	}
	var nics []string
	for i := range p.Links {
		w := &p.Links[i]
		if w.Identity.VXLAN != 0 && len(refused[w.Device]) > 0 && !slices.Contains(nics, w.Device) {
			nics = append(nics, w.Device)
		}
	}
	if len(nics) > 0 {
		slices.Sort(nics)
		c.Status, c.Reason = metav1.ConditionFalse, "OutOfRange"
		c.Message = clip("VXLANs on " + strings.Join(nics, ", ") + " leave nodes out whose address there is not in a subnet of this node's NIC, or not in --vtep-ranges: " +
			"the log of patchbayd names them; set --vtep-ranges if they are right")
	}
	return c
}

// firstAddress parses what another node wrote; nothing there can make it fail.
func firstAddress(prefixes []string) (netip.Addr, bool) {
	if len(prefixes) == 0 {
		return netip.Addr{}, false
	}
	p, err := netip.ParsePrefix(prefixes[0])
	if err != nil || !p.Addr().IsGlobalUnicast() {
		return netip.Addr{}, false
	}
	return p.Addr().Unmap(), true
}

// of returns the peers on a device that local can send to, or nil when unknown.
func (v VTEPs) of(device string, local netip.Addr) []netip.Addr {
	if v == nil {
		return nil
	}
	reachable := []netip.Addr{}
	for _, a := range v[device] {
		if a.Is4() == local.Is4() && a != local {
			reachable = append(reachable, a)
		}
	}
	return reachable
}
