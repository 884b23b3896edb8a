// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Failures are the errors of the last attempt to change a link.
type Failures map[network.Link]error

// takeTagFailures takes the failures out that leave a link usable, with tags of Pods passing.
func (f Failures) takeTagFailures() error {
	open := Failures{}
	for id, err := range f {
		if errors.Is(err, errTagsNotFiltered) {
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
		if nic.isReported() || slices.Contains(plan.RequiredNICs, nic.Name) {
			s.NICs = append(s.NICs, nic.status())
		}
	}
	slices.SortFunc(s.NICs, func(a, b v1.NIC) int { return strings.Compare(a.Name, b.Name) })
	r := newLinkRows(plan, state, failures)
	s.Links = r.build()
	for ref, err := range plan.Refused {
		s.Refused = append(s.Refused, v1.RefusedNetwork{Network: ref.String(), Error: truncate(err.Error())})
	}
	slices.SortFunc(s.Refused, func(a, b v1.RefusedNetwork) int { return strings.Compare(a.Network, b.Network) })
	s.Conditions = []metav1.Condition{readyCondition(s.Links, s.Refused)}
	return s
}

// linkRows makes the links of a status.
type linkRows struct {
	plan     *Plan
	failures Failures
	nics     map[string]*NIC
	// observed are whole links of ours.
	observed map[network.Link]*ObservedLink
	// desiredNames are the names that the plan gives.
	desiredNames map[string]bool
}

func newLinkRows(plan *Plan, state *State, failures Failures) *linkRows {
	r := &linkRows{
		plan: plan, failures: failures,
		nics: map[string]*NIC{}, observed: map[network.Link]*ObservedLink{}, desiredNames: map[string]bool{},
	}
	for i := range state.NICs {
		r.nics[state.NICs[i].Name] = &state.NICs[i]
	}
	for i := range state.Links {
		if f := &state.Links[i]; f.Managed && !f.Unfinished {
			r.observed[f.Identity] = f
		}
	}
	for i := range plan.Links {
		r.desiredNames[plan.Links[i].Name] = true
	}
	return r
}

// build are the links that networks need, the NICs that they use directly, and links
// of ours that stay although nobody needs them.
func (r *linkRows) build() []v1.HostLink {
	var list []v1.HostLink
	for i := range r.plan.Links {
		list = append(list, r.linkRow(&r.plan.Links[i]))
	}
	for i := range r.plan.DirectNICs {
		list = append(list, r.nicRow(&r.plan.DirectNICs[i]))
	}
	for id, f := range r.observed {
		if r.plan.link(id) == nil {
			list = append(list, r.orphanRow(f))
		}
	}
	slices.SortFunc(list, compareRows)
	return list
}

func (r *linkRows) linkRow(w *DesiredLink) v1.HostLink {
	s := newRow(w)
	f := r.observed[w.Identity]
	if f != nil {
		s.MTU, s.State = int32(f.MTU), v1.LinkDown
		if f.Local.IsValid() {
			s.VTEP = f.Local.String()
		}
		if !r.desiredNames[f.Name] { // the list's key is the name
			s.Name = f.Name
		}
		if f.Up {
			s.State = v1.LinkUp
		}
	}
	switch err := firstError(w.Err, r.failures[w.Identity]); {
	case err != nil:
		s.State, s.Error = v1.LinkError, truncate(err.Error())
	case f != nil && w.deferredReason(f) != "":
		s.State, s.Error = v1.LinkChangePending, w.deferredReason(f)
	case s.State == v1.LinkUp && r.nics[w.Device] != nil && r.nics[w.Device].NoCarrier:
		s.State, s.Error = v1.LinkDown, noCarrierMessage(w.Device)
	}
	return s
}

// deferredReason says what of a link is not as planned since something is on it.
func (w *DesiredLink) deferredReason(f *ObservedLink) string {
	switch {
	case f.Device != w.Device:
		return fmt.Sprintf("it stays on %s while Pods are on it, then it moves to %s: end the Pods on this node", f.Device, w.Device)
	case w.needsRecreation(f):
		return fmt.Sprintf("it receives at %s while Pods are on it, then at %s: end the Pods on this node", f.Local, w.Local)
	case f.MTU > w.MTU:
		return fmt.Sprintf("mtu stays %d while Pods are on it, then it is %d, which is what %s leaves: end the Pods on this node", f.MTU, w.MTU, w.Device)
	}
	return ""
}

// nicRow is a NIC that networks use as it is.
func (r *linkRows) nicRow(w *DesiredLink) v1.HostLink {
	s := newRow(w)
	s.Parent = ""
	nic := r.nics[w.Device]
	if nic != nil {
		s.MTU = int32(nic.MTU)
		if nic.Up {
			s.State = v1.LinkUp
		}
	}
	switch err := firstError(w.Err, r.failures[w.Identity]); {
	case err != nil:
		s.State, s.Error = v1.LinkError, truncate(err.Error())
	case nic != nil && nic.Up && nic.NoCarrier:
		s.State, s.Error = v1.LinkDown, noCarrierMessage(w.Device)
	}
	return s
}

// orphanRow is a link that no network asks for any more.
func (r *linkRows) orphanRow(f *ObservedLink) v1.HostLink {
	s := v1.HostLink{Name: f.Name, Identity: f.Identity.String(), Parent: f.Device, MTU: int32(f.MTU), State: v1.LinkChangePending}
	if f.Local.IsValid() {
		s.VTEP = f.Local.String()
	}
	s.Error = "no network asks for it on this node: it goes when nothing is on it any more"
	if r.desiredNames[f.Name] { // the list's key is the name
		s.Name = f.Identity.String()
	}
	if err := r.failures[f.Identity]; err != nil {
		s.State, s.Error = v1.LinkError, truncate(err.Error())
	}
	return s
}

// newRow is what every link has.
func newRow(w *DesiredLink) v1.HostLink {
	s := v1.HostLink{Name: w.Name, Identity: w.Identity.String(), Parent: w.Device, State: v1.LinkDown}
	for _, ref := range w.Networks {
		s.Networks = append(s.Networks, ref.String())
	}
	slices.Sort(s.Networks)
	return s
}

func noCarrierMessage(device string) string {
	return device + " has no carrier: is its cable in, and the switch's port up?"
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// compareRows compares rows.
func compareRows(a, b v1.HostLink) int { return cmp.Compare(a.Name, b.Name) }

// isReported tells NICs that are shown even when no network names them: cards and
// what bundles them, not the ends of Pods' cables, nor virtual functions, which every
// Pod that gets one takes away and brings back. One with an address is the node's own,
// and no Pod may get that address.
func (n *NIC) isReported() bool {
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

// maxErrorLen is the longest error of a row, in bytes: a thousand of them still fit an
// object.
const maxErrorLen = 400

func truncate(text string) string {
	if len(text) <= maxErrorLen {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorLen], "") + "…"
}
