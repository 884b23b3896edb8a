// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Failures are the errors of the last attempt to change a link.
type Failures map[network.Link]error

// Status tells how the plan stands in the kernel. Equal input gives equal
// output, so it can be compared with what was written before; versions and the
// conditions' times are the writer's.
func Status(plan *Plan, state *State, failures Failures) v1.NodeNetworkStatus {
	var s v1.NodeNetworkStatus
	for i := range state.NICs {
		nic := &state.NICs[i]
		if nic.listed() || slices.Contains(plan.NICs, nic.Name) {
			s.NICs = append(s.NICs, nic.status())
		}
	}
	slices.SortFunc(s.NICs, func(a, b v1.NIC) int { return strings.Compare(a.Name, b.Name) })
	r := newRows(plan, state, failures)
	s.Links = r.all()
	for ref, err := range plan.Refused {
		s.Refused = append(s.Refused, v1.RefusedNetwork{Network: ref.String(), Error: clip(err.Error())})
	}
	slices.SortFunc(s.Refused, func(a, b v1.RefusedNetwork) int { return strings.Compare(a.Network, b.Network) })
	s.Conditions = []metav1.Condition{ready(s.Links, s.Refused)}
	return s
}

// maxError is the longest error of a row, in bytes: a thousand of them still fit an
// object.
const maxError = 400

func clip(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}

// listed tells NICs that are shown even when no network names them: cards and
// what bundles them, not the ends of Pods' cables, nor virtual functions, which every
// Pod that gets one takes away and brings back. One with an address is the node's own,
// and no Pod may get that address.
func (n *NIC) listed() bool {
	if n.VF && len(n.Addresses) == 0 {
		return false
	}
	return n.Kind == "" || n.Kind == "bond" || n.Kind == "team"
}

func (n *NIC) status() v1.NIC {
	s := v1.NIC{Name: n.Name, MAC: n.MAC, MTU: int32(n.MTU), Driver: n.Driver, Speed: int32(n.Speed)}
	for _, a := range n.Addresses {
		s.Addresses = append(s.Addresses, a.String())
	}
	if n.TotalVFs > 0 {
		s.SRIOV = &v1.SRIOVFunctions{TotalVFs: int32(n.TotalVFs), NumVFs: int32(n.NumVFs)}
	}
	return s
}

// link finds a whole link of ours.
func (s *State) link(id network.Link) *Found {
	for i := range s.Links {
		if f := &s.Links[i]; f.Ours && !f.HalfMade && f.Identity == id {
			return f
		}
	}
	return nil
}

// byName compares rows.
func byName(a, b v1.HostLink) int { return cmp.Compare(a.Name, b.Name) }
