// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Failures are the errors of the last attempt to change a link.
type Failures map[network.Link]error

// tagged takes the failures out that leave a link usable, with tags of Pods passing.
func (f Failures) tagged() error {
	open := Failures{}
	for id, err := range f {
		if errors.Is(err, errTagsPass) {
			open[id] = err
			delete(f, id)
		}
	}
	return open.join()
}

// join makes one error, in a stable order, or nil.
func (f Failures) join() error {
	var errs []error
	for _, err := range f {
		errs = append(errs, err)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

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

// row is what every link has.
func row(w *Wanted) v1.HostLink {
	s := v1.HostLink{Name: w.Name, Identity: w.Identity.String(), Parent: w.Device, State: v1.LinkDown}
	for _, ref := range w.Networks {
		s.Networks = append(s.Networks, ref.String())
	}
	slices.Sort(s.Networks)
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

// byName compares rows.
func byName(a, b v1.HostLink) int { return cmp.Compare(a.Name, b.Name) }

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

// maxError is the longest error of a row, in bytes: a thousand of them still fit an
// object.
const maxError = 400

func clip(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}
