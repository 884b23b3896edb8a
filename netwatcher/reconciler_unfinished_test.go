// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// The daemon died over a link that a Pod waits for: the Pod's record does not keep
// what no Pod can be on, and the link is made anew.
func TestUnfinishedLinkOfAWaitingPod(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	for name, ask := range map[string]func(ctx context.Context, r *Reconciler) error{
		"Round": func(ctx context.Context, r *Reconciler) error { return r.Reconcile(ctx) },
		"Pod":   func(ctx context.Context, r *Reconciler) error { _, err := r.Parent(ctx, n); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(n)
			half := ours(vlanLink("a.5", "ens4", 5, 1500))
			half.Unfinished, half.Up = true, false
			w.state.Links = []ObservedLink{half}
			w.used[half.Identity] = true
			if err := ask(t.Context(), w.reconciler(t)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]ObservedLink{ours(half.Spec)}, w.state.Links, opts); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// meanwhile does something after the first look at the links.
type meanwhile struct {
	*world
	do func(w *world)
}

func (m *meanwhile) State(ctx context.Context) (*State, error) {
	s, err := m.world.State(ctx)
	if do := m.do; do != nil {
		m.do = nil
		m.change(do)
	}
	return s, err
}

// A Pod's ADD makes or finishes the link between a round's look and its steps: the
// round neither removes it nor calls it failed.
func TestPodMakesTheLinkMeanwhile(t *testing.T) {
	t.Parallel()
	whole := ours(vlanLink("a.5", "ens4", 5, 1500))
	half := whole
	half.Unfinished = true
	for name, before := range map[string][]ObservedLink{"Missing": nil, "HalfMade": {half}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(newNet(1, "a", vlan(5)), newNet(2, "bad", vlan(6)))
			w.state.Links, w.err["bad.6"] = before, errBroken
			o := &observer{steps: map[Op]int{}}
			r := New(Config{Node: "self", Firewall: wall{w}, SourceGuard: guards{w}, KubeClient: w, Pods: w, Log: testLog(t), Observer: o, Kernel: &meanwhile{w, func(w *world) {
				w.state.Links = []ObservedLink{whole}
				w.used[whole.Identity] = true
			}}})
			err := r.Reconcile(t.Context())
			if want := "create link bad.6: broken"; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if diff := cmp.Diff([]ObservedLink{whole}, w.state.Links, opts); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			want := []LinkEvent{{ReasonLinkFailed, true, "bad.6: create link bad.6: broken"}}
			if diff := cmp.Diff(want, o.news); diff != "" || o.last.Links[0].State != v1.LinkUp {
				t.Errorf("-want +got\n%s\nlinks %+v", diff, o.last.Links)
			}
		})
	}
}
