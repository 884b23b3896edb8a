// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"github.com/patchbay-cni/patchbay/internal/network"
)

// linkCache is what the last round left: which links a Pod may have at once, and
// which links' changes matter.
type linkCache struct {
	// ready are the names of whole links that are up and sealed. One that waits to be
	// changed until nothing is on it is among them: a workload whose Pods are replaced
	// one by one would be stuck if the new ones had to wait for the last old one.
	ready map[network.Link]string
	// linkByNetwork are the networks that may use their link.
	linkByNetwork map[network.Ref]network.Link
	// refused are networks that may not, and why.
	refused map[network.Ref]error
	// watched are the names that a change of matters for: links, NICs, and NICs
	// that are wanted and missing.
	watched map[string]bool
}

// invalidate takes a change in, and reports whether it matters.
func (v *linkCache) invalidate(name string) bool {
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

// startRecording notes from now on what changes: a round is about to look.
func (r *Reconciler) startRecording() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changedLinks = map[string]bool{}
}

// publishCache makes a round's outcome what Parent and the status see, but for what changed
// since the look that it is of.
func (r *Reconciler) publishCache(in *scope, failed Failures) {
	v := linkCache{ready: map[network.Link]string{}, linkByNetwork: in.linkByNetwork(), refused: in.plan.Refused, watched: map[string]bool{}}
	for _, name := range in.plan.RequiredNICs {
		v.watched[name] = true
		v.ready[network.Link{Device: name}] = name
	}
	for i := range in.plan.Links {
		w := &in.plan.Links[i]
		v.watched[w.Name], v.watched[w.Device] = true, true
		if f := in.state.link(w.Identity); f != nil && w.Err == nil && f.Up && f.HostUnreachable {
			v.ready[w.Identity] = f.Name
			v.watched[f.Name] = true
		}
	}
	for i := range in.state.NICs {
		if in.state.NICs[i].isReported() {
			v.watched[in.state.NICs[i].Name] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref, err := range v.refused {
		if old := r.cache.refused[ref]; old == nil || old.Error() != err.Error() {
			r.Log.Info("a network has no link on this node", "network", ref.String(), "error", err)
		}
	}
	for name := range r.changedLinks {
		if v.invalidate(name) {
			r.Trigger() // it may not have mattered before
		}
	}
	r.cache, r.failures, r.changedLinks = v, failed, nil
}

// linkChanged is told of every link event. Links that do not matter, such as the ends
// of Pods' cables, cost nothing.
func (r *Reconciler) linkChanged(name string) {
	r.mu.Lock()
	matters := r.cache.invalidate(name)
	if r.changedLinks != nil {
		r.changedLinks[name] = true
	}
	r.mu.Unlock()
	if matters {
		r.Trigger()
	}
}
