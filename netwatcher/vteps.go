// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
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

// VTEPRanges are where a netadmin says that VTEPs are, by the name of their NIC.
type VTEPRanges map[string][]netip.Prefix

// splitAccepted splits off the VTEPs that do not count: a node writes its own NodeNetwork, and
// one that was taken over could have the others send to any address. On a NIC with ranges
// they decide, on another the subnets that this node has there. VTEPs on NICs that this node
// does not have are nothing that it sends to.
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

// reachableFrom returns the peers on a device that local can send to, or nil when unknown.
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
