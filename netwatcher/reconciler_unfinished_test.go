// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// The daemon ended before it had finished a link that a Pod waits for. The link is deleted in spite
// of the Pod's record, as no Pod can be on it, and created again.
func TestUnfinishedLinkOfAWaitingPod(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	for name, ask := range map[string]func(ctx context.Context, r *Reconciler) error{
		"Reconcile": func(ctx context.Context, r *Reconciler) error { return r.Reconcile(ctx) },
		"Pod":       func(ctx context.Context, r *Reconciler) error { _, err := r.Parent(ctx, n); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode(n)
			unfinished := managed(vlanLink("a.5", "ens4", 5, 1500))
			unfinished.Unfinished, unfinished.Up = true, false
			w.state.Links = []ObservedLink{unfinished}
			w.used[unfinished.Identity] = true
			if err := ask(t.Context(), w.reconciler(t)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]ObservedLink{managed(unfinished.Spec)}, w.state.Links, opts); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// hookedKernel calls do once, after its state was read.
type hookedKernel struct {
	*fakeNode
	do func(w *fakeNode)
}

func (m *hookedKernel) State(ctx context.Context) (*State, error) {
	s, err := m.fakeNode.State(ctx)
	if do := m.do; do != nil {
		m.do = nil
		m.change(do)
	}
	return s, err
}

// A Pod's ADD creates or finishes the link after a reconciliation has read the state: the
// reconciliation neither deletes the link nor reports a failure.
func TestPodMakesTheLinkMeanwhile(t *testing.T) {
	t.Parallel()
	finished := managed(vlanLink("a.5", "ens4", 5, 1500))
	unfinished := finished
	unfinished.Unfinished = true
	for name, before := range map[string][]ObservedLink{"Missing": nil, "Unfinished": {unfinished}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode(newNet(1, "a", vlan(5)), newNet(2, "bad", vlan(6)))
			w.state.Links, w.err["bad.6"] = before, errBroken
			o := &observer{steps: map[Op]int{}}
			r := New(Config{Node: "self", Firewall: fakeFirewall{w}, SourceGuard: fakeSourceGuard{w}, KubeClient: w, Pods: w, Log: testLog(t), Observer: o, Kernel: &hookedKernel{w, func(w *fakeNode) {
				w.state.Links = []ObservedLink{finished}
				w.used[finished.Identity] = true
			}}})
			err := r.Reconcile(t.Context())
			if want := "create link bad.6: broken"; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if diff := cmp.Diff([]ObservedLink{finished}, w.state.Links, opts); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			want := []LinkEvent{{v1.ReasonLinkFailed, true, "bad.6: create link bad.6: broken"}}
			if diff := cmp.Diff(want, o.events); diff != "" || o.last.Links[0].State != v1.LinkUp {
				t.Errorf("-want +got\n%s\nlinks %+v", diff, o.last.Links)
			}
		})
	}
}
