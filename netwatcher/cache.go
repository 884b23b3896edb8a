// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"github.com/patchbay-cni/patchbay/network"
)

// view is what the last round left: which links a Pod may have at once, and
// which links' changes matter.
type view struct {
	// ready are the names of whole links that are up and sealed. One that waits to be
	// changed until nothing is on it is among them: a workload whose Pods are replaced
	// one by one would be stuck if the new ones had to wait for the last old one.
	ready map[network.Link]string
	// riders are the networks that may use their link.
	riders map[network.Ref]network.Link
	// refused are networks that may not, and why.
	refused map[network.Ref]error
	// watched are the names that a change of matters for: links, NICs, and NICs
	// that are wanted and missing.
	watched map[string]bool
}

// moved takes a change in, and reports whether it matters.
func (v *view) moved(name string) bool {
	if name != "" && v.watched != nil && !v.watched[name] {
		return false
	}
	for id, link := range v.ready {
		if name == "" || link == name || id.Device == name {
			delete(v.ready, id)
		}
	}
	return true
}

// listen notes from now on what changes: a round is about to look.
func (r *Reconciler) listen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = map[string]bool{}
}

// show makes a round's outcome what Parent and the status see, but for what changed
// since the look that it is of.
func (r *Reconciler) show(in *input, failed Failures) {
	v := view{ready: map[network.Link]string{}, riders: in.riders(), refused: in.plan.Refused, watched: map[string]bool{}}
	for _, name := range in.plan.NICs {
		v.watched[name] = true
		v.ready[network.Link{Device: name}] = name
	}
	for i := range in.plan.Links {
		w := &in.plan.Links[i]
		v.watched[w.Name], v.watched[w.Device] = true, true
		if f := in.state.link(w.Identity); f != nil && w.Err == nil && f.Up && f.Sealed {
			v.ready[w.Identity] = f.Name
			v.watched[f.Name] = true
		}
	}
	for i := range in.state.NICs {
		if in.state.NICs[i].listed() {
			v.watched[in.state.NICs[i].Name] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref, err := range v.refused {
		if old := r.view.refused[ref]; old == nil || old.Error() != err.Error() {
			r.Log.Info("a network has no link on this node", "network", ref.String(), "error", err)
		}
	}
	for name := range r.heard {
		if v.moved(name) {
			r.Trigger() // it may not have mattered before
		}
	}
	r.view, r.failed, r.heard = v, failed, nil
}

// changed is told of every link event. Links that do not matter, such as the ends
// of Pods' cables, cost nothing.
func (r *Reconciler) changed(name string) {
	r.mu.Lock()
	matters := r.view.moved(name)
	if r.heard != nil {
		r.heard[name] = true
	}
	r.mu.Unlock()
	if matters {
		r.Trigger()
	}
}
