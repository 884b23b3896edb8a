// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// VTEPs are the addresses at which other nodes receive VXLAN, by the name of their NIC. In contrast
// to an empty map, a nil map means that they are not known.
type VTEPs map[string][]netip.Addr

// SameVTEPs reports whether two lists of a node's NICs have the same names and addresses, which are
// all that other nodes need: they use neither a NIC without addresses, nor its speed.
func SameVTEPs(a, b []v1.NIC) bool {
	noAddress := func(n v1.NIC) bool { return len(n.Addresses) == 0 }
	a = slices.DeleteFunc(slices.Clone(a), noAddress)
	b = slices.DeleteFunc(slices.Clone(b), noAddress)
	return slices.EqualFunc(a, b, func(a, b v1.NIC) bool { return a.Name == b.Name && slices.Equal(a.Addresses, b.Addresses) })
}

// PeerVTEPs returns the first global address of every NIC of every node but self, without
// duplicates. A node that claims another node's address gets none of its frames: they are sent
// to the host that has the address.
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

// firstAddress parses an address that another node wrote. It returns false for an invalid one.
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

// VTEPRanges are the administrator's prefixes of VTEPs, by the name of their NIC.
type VTEPRanges map[string][]netip.Prefix

// splitAccepted separates the VTEPs that this node uses from those that it ignores: a node writes
// its own NodeNetwork, and a compromised one could make others send to any address. A VTEP must
// be in the NIC's ranges or, without ranges, in a subnet of this node's NIC. VTEPs on NICs that
// this node does not have are accepted: the node does not send to them.
func (v VTEPs) splitAccepted(state *State, ranges VTEPRanges) (accepted, refused VTEPs) {
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

// reachableFrom returns the peers on a device that local can send to, or nil if they are unknown.
func (v VTEPs) reachableFrom(device string, local netip.Addr) []netip.Addr {
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
