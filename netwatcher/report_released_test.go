// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"testing"
	"time"
)

// woken reports whether a round was asked for, and takes the wish back.
func (r *Reconciler) woken() bool {
	select {
	case <-r.trigger:
		return true
	default:
		return false
	}
}

// The last Pod on a link that no network asks for has gone: nobody waits a minute.
func TestPodDetachedRemovesLink(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newWorld(n)
	id, _ := n.Link()
	w.used[id] = true
	r := w.reconciler(t)
	r.PodDetached() // before the first round
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.PodDetached(); r.woken() {
		t.Error("a round was asked for although all links are as planned")
	}
	w.change(func(w *world) { w.nets = nil })
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.change(func(w *world) { delete(w.used, id) })
	if r.PodDetached(); !r.woken() {
		t.Error("the link waits for the next round that something else asks for")
	}
	r.reported.writtenAt = time.Time{}
	if err := r.Reconcile(t.Context()); err != nil || len(w.links()) > 0 {
		t.Errorf("links %v, %v", w.links(), err)
	}
}

// A link that changes between the look and the end of the round is not handed out by
// what the look saw, be it watched before or not.
func TestChangeDuringARound(t *testing.T) {
	t.Parallel()
	for name, rounds := range map[string]int{"FirstRound": 0, "Later": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, n := newNet(1, "old", vlan(4)), newNet(2, "a", vlan(5))
			w := newWorld(old)
			w.state.Links = []ObservedLink{ours(vlanLink("old.4", "ens4", 4, 1500)), ours(vlanLink("a.5", "ens4", 5, 1500))}
			id, _ := n.Link()
			oldID, _ := old.Link()
			w.used[id] = true
			kernel := &meanwhile{world: w}
			r := New(Config{Node: "self", Kernel: kernel, Firewall: wall{w}, SourceGuard: guards{w}, KubeClient: w, Pods: w, Log: testLog(t)})
			for range rounds {
				if err := r.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.nets = append(w.nets, n)
			kernel.do = func(*world) { r.linkChanged("a.5"); r.linkChanged("veth7"); r.woken() }
			if err := r.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, ready := r.cachedLink(id, n.Ref); ready || !r.woken() {
				t.Errorf("ready %v; want it looked at again, by a round and by the next Pod", ready)
			}
			if name, ready := r.cachedLink(oldID, old.Ref); !ready || name != "old.4" {
				t.Error("another link must be looked at again, too")
			}
		})
	}
}
