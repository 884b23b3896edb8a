// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"testing"
	"time"
)

// triggered reports whether a reconciliation was triggered, and resets the trigger.
func (r *Reconciler) triggered() bool {
	select {
	case <-r.trigger:
		return true
	default:
		return false
	}
}

// When the last Pod has left a link that no network needs, a reconciliation is triggered at once.
func TestPodDetachedRemovesLink(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newFakeNode(n)
	id, _ := n.Link()
	w.used[id] = true
	r := w.reconciler(t)
	r.PodDetached() // before the first reconciliation
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.PodDetached(); r.triggered() {
		t.Error("a reconciliation was triggered although all links are as planned")
	}
	w.change(func(w *fakeNode) { w.nets = nil })
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.change(func(w *fakeNode) { delete(w.used, id) })
	if r.PodDetached(); !r.triggered() {
		t.Error("no reconciliation was triggered for the link")
	}
	r.reporter.writtenAt = time.Time{}
	if err := r.Reconcile(t.Context()); err != nil || len(w.links()) > 0 {
		t.Errorf("links %v, %v", w.links(), err)
	}
}

// A link that changes during a reconciliation is not ready by the state that the reconciliation
// read, whether the link was watched before or not.
func TestChangeDuringReconcile(t *testing.T) {
	t.Parallel()
	for name, rounds := range map[string]int{"First": 0, "Later": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, n := newNet(1, "old", vlan(4)), newNet(2, "a", vlan(5))
			w := newFakeNode(old)
			w.state.Links = []ObservedLink{managed(vlanLink("old.4", "ens4", 4, 1500)), managed(vlanLink("a.5", "ens4", 5, 1500))}
			id, _ := n.Link()
			oldID, _ := old.Link()
			w.used[id] = true
			kernel := &hookedKernel{fakeNode: w}
			r := New(Config{Node: "self", Kernel: kernel, Firewall: fakeFirewall{w}, SourceGuard: fakeSourceGuard{w}, KubeClient: w, Pods: w, Log: testLog(t)})
			for range rounds {
				if err := r.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.nets = append(w.nets, n)
			kernel.do = func(*fakeNode) { r.linkChanged("a.5"); r.linkChanged("veth7"); r.triggered() }
			if err := r.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, ready := r.cache.lookup(id, n.Ref); ready || !r.triggered() {
				t.Errorf("ready %v; want the link not ready and a reconciliation triggered", ready)
			}
			if name, ready := r.cache.lookup(oldID, old.Ref); !ready || name != "old.4" {
				t.Error("another link must stay ready")
			}
		})
	}
}
