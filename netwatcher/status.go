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
	"github.com/patchbay-cni/patchbay/internal/text"
)

// linkFailures are the errors of links that could not be changed.
type linkFailures map[network.Link]error

// takeTagFailures removes and joins the failures of tag filters, which leave the link usable.
func (f linkFailures) takeTagFailures() error {
	open := linkFailures{}
	for id, err := range f {
		if errors.Is(err, errTagsNotFiltered) {
			open[id] = err
			delete(f, id)
		}
	}
	return open.join()
}

// join joins the errors in a stable order; it returns nil for none.
func (f linkFailures) join() error {
	var errs []error
	for _, err := range f {
		errs = append(errs, err)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// newStatus describes the plan and the existing links. Equal input gives equal output, so that it can
// be compared with the last status. The caller adds versions and the conditions' times.
func newStatus(plan *Plan, state *State, failures linkFailures, delegates []v1.DelegateReport, notCalled error) v1.NodeNetworkStatus {
	s := v1.NodeNetworkStatus{Delegates: delegates}
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
	s.Conditions = []metav1.Condition{readyCondition(&s, notCalled)}
	return s
}

// linkRows builds the links of a status.
type linkRows struct {
	plan     *Plan
	failures linkFailures
	nics     map[string]*NIC
	// observed are the finished managed links.
	observed map[network.Link]*ObservedLink
	// desiredNames are the names that the plan gives.
	desiredNames map[string]bool
}

func newLinkRows(plan *Plan, state *State, failures linkFailures) *linkRows {
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

// build returns the links that networks need, the NICs that they use directly, and managed links
// that no network needs but that are in use.
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
		if !r.desiredNames[f.Name] { // names must be unique: they are the key of the list
			s.Name = f.Name
		}
		if f.Up {
			s.State = v1.LinkUp
		}
	}
	switch err := firstError(w.Err, r.failures[w.Identity]); {
	case err != nil:
		s.State, s.Error = v1.LinkError, truncate(err.Error())
	case f != nil && deferredReason(w, f) != "":
		s.State, s.Error = v1.LinkChangePending, deferredReason(w, f)
	case s.State == v1.LinkUp && r.nics[w.Device] != nil && r.nics[w.Device].NoCarrier:
		s.State, s.Error = v1.LinkDown, noCarrierMessage(w.Device)
	}
	return s
}

// deferredReason returns the reason why a change of the link waits until nothing is on it, or "".
func deferredReason(w *DesiredLink, f *ObservedLink) string {
	switch {
	case f.Device != w.Device:
		return fmt.Sprintf("the link stays on %s while Pods use it, then it moves to %s: delete its Pods on this node", f.Device, w.Device)
	case w.needsRecreation(f):
		return fmt.Sprintf("the link receives at %s while Pods use it, then at %s: delete its Pods on this node", f.Local, w.Local)
	case f.MTU > w.MTU:
		return fmt.Sprintf("mtu stays %d while Pods use the link, then it is %d, the most that %s allows: delete its Pods on this node", f.MTU, w.MTU, w.Device)
	}
	return ""
}

// nicRow is the row of a NIC that networks use directly.
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

// orphanRow is the row of a managed link that no network needs any more.
func (r *linkRows) orphanRow(f *ObservedLink) v1.HostLink {
	s := v1.HostLink{Name: f.Name, Identity: f.Identity.String(), Parent: f.Device, MTU: int32(f.MTU), State: v1.LinkChangePending}
	if f.Local.IsValid() {
		s.VTEP = f.Local.String()
	}
	s.Error = "no network needs the link on this node: it is deleted when nothing uses it any more"
	if r.desiredNames[f.Name] { // names must be unique: they are the key of the list
		s.Name = f.Identity.String()
	}
	if err := r.failures[f.Identity]; err != nil {
		s.State, s.Error = v1.LinkError, truncate(err.Error())
	}
	return s
}

// newRow is a row with the values of the desired link.
func newRow(w *DesiredLink) v1.HostLink {
	s := v1.HostLink{Name: w.Name, Identity: w.Identity.String(), Parent: w.Device, State: v1.LinkDown}
	for _, ref := range w.Networks {
		s.Networks = append(s.Networks, ref.String())
	}
	slices.Sort(s.Networks)
	return s
}

func noCarrierMessage(device string) string {
	return device + " has no carrier: check its cable and the switch port"
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// compareRows orders rows by name.
func compareRows(a, b v1.HostLink) int { return cmp.Compare(a.Name, b.Name) }

// isReported reports whether the NIC is in the status even if no network names it. Cards and bonds
// are, Pods' veths are not. Virtual functions are not, as they come and go with Pods, and neither are
// their representors, unless they have an address: it is the node's own, and no Pod may get it.
func (n *NIC) isReported() bool {
	if (n.VF || n.Representor) && len(n.Addresses) == 0 {
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
		s.SRIOV = n.functionsStatus()
	}
	return s
}

// functionsStatus describes the virtual functions of a NIC. The switch is in mode switchdev if it has a
// representor: some drivers report a switch in both modes.
func (n *NIC) functionsStatus() *v1.SRIOVFunctions {
	s := &v1.SRIOVFunctions{TotalVFs: int32(n.TotalVFs), NumVFs: int32(n.NumVFs), Address: n.PCIAddress}
	for i := range n.Functions[:min(len(n.Functions), v1.MaxFunctions)] {
		f := &n.Functions[i]
		s.Functions = append(s.Functions, v1.VirtualFunction{
			Index: int32(f.Index), Address: f.Address, Driver: f.Driver, Userspace: f.Userspace, Representor: f.Representor,
		})
		if f.Representor != "" {
			s.Mode = v1.SwitchModeSwitchdev
		}
	}
	if len(s.Functions) > 0 && s.Mode == "" {
		s.Mode = v1.SwitchModeLegacy
	}
	return s
}

// maxErrorLen is the longest error of a row in bytes: an object has room for a thousand of them.
const maxErrorLen = 400

func truncate(message string) string { return text.Truncate(message, maxErrorLen) }
