// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// States of a host link, as in NodeNetwork's status.
const (
	up     = "Up"
	down   = "Down"
	failed = "Error"
)

// Failures are the errors of the last attempt to change a link.
type Failures map[network.Link]error

// Status tells how the plan stands in the kernel. Equal input gives equal
// output, so it can be compared with what was written before; the conditions'
// times are the writer's.
func Status(plan *Plan, state *State, failures Failures, version string) v1.NodeNetworkStatus {
	s := v1.NodeNetworkStatus{Version: version}
	for i := range state.NICs {
		nic := &state.NICs[i]
		if nic.listed() || slices.Contains(plan.NICs, nic.Name) {
			s.NICs = append(s.NICs, nic.status())
		}
	}
	slices.SortFunc(s.NICs, func(a, b v1.NIC) int { return strings.Compare(a.Name, b.Name) })
	for i := range plan.Links {
		s.Links = append(s.Links, linkStatus(plan, &plan.Links[i], state, failures))
	}
	slices.SortFunc(s.Links, func(a, b v1.HostLink) int { return strings.Compare(a.Name, b.Name) })
	s.Conditions = []metav1.Condition{ready(s.Links)}
	return s
}

// listed tells NICs that are shown even when no network names them: cards and
// what bundles them, not the ends of Pods' cables.
func (n *NIC) listed() bool {
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

func linkStatus(plan *Plan, w *Wanted, state *State, failures Failures) v1.HostLink {
	s := v1.HostLink{Name: w.Name, Identity: w.Identity.String(), Parent: w.Device, State: down}
	for _, ref := range w.Networks {
		s.Networks = append(s.Networks, ref.String())
	}
	slices.Sort(s.Networks)
	if f := state.link(w.Identity); f != nil {
		s.MTU = int32(f.MTU)
		if !plan.names(f.Name) { // the list's key is the name
			s.Name = f.Name
		}
		if f.Up {
			s.State = up
		}
	}
	err := w.Err
	if err == nil {
		err = failures[w.Identity]
	}
	if err != nil {
		s.State, s.Error = failed, err.Error()
	}
	return s
}

// names reports whether a wanted link has the name.
func (p *Plan) names(name string) bool {
	return slices.ContainsFunc(p.Links, func(w Wanted) bool { return w.Name == name })
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
