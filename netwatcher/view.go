// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"reflect"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// view is what the last round left: which links a Pod may have at once, and
// which links' changes matter.
type view struct {
	// ready are the names of links that are as planned.
	ready map[network.Link]string
	// refused are networks that may not use theirs.
	refused map[network.Ref]error
	// watched are the names that a change of matters for: links, NICs, and NICs
	// that are wanted and missing.
	watched map[string]bool
}

// show makes a round's outcome what Parent sees.
func (r *Reconciler) show(in *input) {
	v := view{ready: map[network.Link]string{}, refused: in.plan.Refused, watched: map[string]bool{}}
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
	r.view = v
}

// changed is told of every link event. Links that do not matter, such as the ends
// of Pods' cables, cost nothing.
func (r *Reconciler) changed(name string) {
	r.mu.Lock()
	matters := name == "" || r.view.watched == nil || r.view.watched[name]
	if matters {
		for id, link := range r.view.ready {
			if name == "" || link == name || id.Device == name {
				delete(r.view.ready, id)
			}
		}
	}
	r.mu.Unlock()
	if matters {
		r.Trigger()
	}
}

func equal(a, b *v1.NodeNetworkStatus) bool { return reflect.DeepEqual(a, b) }
