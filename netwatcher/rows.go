// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// rows makes the links of a status.
type rows struct {
	plan     *Plan
	failures Failures
	nics     map[string]*NIC
	// found are whole links of ours.
	found map[network.Link]*Found
	// wanted are the names that the plan gives.
	wanted map[string]bool
}

func newRows(plan *Plan, state *State, failures Failures) *rows {
	r := &rows{
		plan: plan, failures: failures,
		nics: map[string]*NIC{}, found: map[network.Link]*Found{}, wanted: map[string]bool{},
	}
	for i := range state.NICs {
		r.nics[state.NICs[i].Name] = &state.NICs[i]
	}
	for i := range state.Links {
		if f := &state.Links[i]; f.Ours && !f.HalfMade {
			r.found[f.Identity] = f
		}
	}
	for i := range plan.Links {
		r.wanted[plan.Links[i].Name] = true
	}
	return r
}

// all are the links that networks need, the NICs that they use directly, and links
// of ours that stay although nobody needs them.
func (r *rows) all() []v1.HostLink {
	var list []v1.HostLink
	for i := range r.plan.Links {
		list = append(list, r.link(&r.plan.Links[i]))
	}
	for i := range r.plan.Cards {
		list = append(list, r.card(&r.plan.Cards[i]))
	}
	for id, f := range r.found {
		if r.plan.link(id) == nil {
			list = append(list, r.unwanted(f))
		}
	}
	slices.SortFunc(list, byName)
	return list
}

// row is what every link has.
func row(w *Wanted) v1.HostLink {
	s := v1.HostLink{Name: w.Name, Identity: w.Identity.String(), Parent: w.Device, State: v1.LinkDown}
	for _, ref := range w.Networks {
		s.Networks = append(s.Networks, ref.String())
	}
	slices.Sort(s.Networks)
	return s
}

func (r *rows) link(w *Wanted) v1.HostLink {
	s := row(w)
	f := r.found[w.Identity]
	if f != nil {
		s.MTU, s.State = int32(f.MTU), v1.LinkDown
		if f.Local.IsValid() {
			s.VTEP = f.Local.String()
		}
		if !r.wanted[f.Name] { // the list's key is the name
			s.Name = f.Name
		}
		if f.Up {
			s.State = v1.LinkUp
		}
	}
	switch err := firstOf(w.Err, r.failures[w.Identity]); {
	case err != nil:
		s.State, s.Error = v1.LinkError, clip(err.Error())
	case f != nil && w.waits(f) != "":
		s.State, s.Error = v1.LinkKept, w.waits(f)
	case s.State == v1.LinkUp && r.nics[w.Device] != nil && r.nics[w.Device].NoCarrier:
		s.State, s.Error = v1.LinkDown, noCarrier(w.Device)
	}
	return s
}

// waits says what of a link is not as planned since something is on it.
func (w *Wanted) waits(f *Found) string {
	switch {
	case f.Device != w.Device:
		return fmt.Sprintf("it stays on %s while Pods are on it, then it moves to %s: end the Pods on this node", f.Device, w.Device)
	case w.elsewhere(f):
		return fmt.Sprintf("it receives at %s while Pods are on it, then at %s: end the Pods on this node", f.Local, w.Local)
	case f.MTU > w.MTU:
		return fmt.Sprintf("mtu stays %d while Pods are on it, then it is %d, which is what %s leaves: end the Pods on this node", f.MTU, w.MTU, w.Device)
	}
	return ""
}

// card is a NIC that networks use as it is.
func (r *rows) card(w *Wanted) v1.HostLink {
	s := row(w)
	s.Parent = ""
	nic := r.nics[w.Device]
	if nic != nil {
		s.MTU = int32(nic.MTU)
		if nic.Up {
			s.State = v1.LinkUp
		}
	}
	switch err := firstOf(w.Err, r.failures[w.Identity]); {
	case err != nil:
		s.State, s.Error = v1.LinkError, clip(err.Error())
	case nic != nil && nic.Up && nic.NoCarrier:
		s.State, s.Error = v1.LinkDown, noCarrier(w.Device)
	}
	return s
}

// unwanted is a link that no network asks for any more.
func (r *rows) unwanted(f *Found) v1.HostLink {
	s := v1.HostLink{Name: f.Name, Identity: f.Identity.String(), Parent: f.Device, MTU: int32(f.MTU), State: v1.LinkKept}
	if f.Local.IsValid() {
		s.VTEP = f.Local.String()
	}
	s.Error = "no network asks for it on this node: it goes when nothing is on it any more"
	if r.wanted[f.Name] { // the list's key is the name
		s.Name = f.Identity.String()
	}
	if err := r.failures[f.Identity]; err != nil {
		s.State, s.Error = v1.LinkError, clip(err.Error())
	}
	return s
}

func noCarrier(device string) string {
	return device + " has no carrier: is its cable in, and the switch's port up?"
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
