// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// A link is guarded if all its networks request it.
func TestGuardedLinks(t *testing.T) {
	t.Parallel()
	guarded, open := newNet(1, "storage", vlan(500)), newNet(2, "storage", vlan(500), named("open"))
	guarded.SourceGuard = true
	cases := map[string]struct {
		reason string
		nets   []*network.Network
		want   bool
	}{
		"Guarded": {"All networks request it.", []*network.Network{guarded}, true},
		"Open":    {"No network requests it.", []*network.Network{open}, false},
		"Both":    {"A frame does not name its network.", []*network.Network{guarded, open}, false},
		"Reverse": {"The order of the networks does not matter.", []*network.Network{open, guarded}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode(tc.nets...)
			r := w.reconciler(t)
			link, err := r.Parent(t.Context(), tc.nets[0])
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(w.guarded, link); got != tc.want {
				t.Errorf("%s A Pod gets a link with guard %v, want %v", tc.reason, got, tc.want)
			}
			if err := r.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(w.guarded, link); got != tc.want {
				t.Errorf("%s After a reconciliation the guard is %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// The next reconciliation applies a change of the network, also while Pods are on the link.
func TestGuardIsChanged(t *testing.T) {
	t.Parallel()
	n := newNet(1, "storage", vlan(500))
	w := newFakeNode(n)
	r := w.reconciler(t)
	for _, on := range []bool{false, true, false} {
		c := *n
		c.SourceGuard = on
		w.nets = []*network.Network{&c}
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (len(w.guarded) == 1) != on {
			t.Errorf("source_guard %v: guarded are %v", on, w.guarded)
		}
	}
}

// A link stays guarded while Pods are on it whose network was refused or deleted.
func TestGuardStaysUnderPods(t *testing.T) {
	t.Parallel()
	n := newNet(1, "storage", vlan(500))
	n.SourceGuard = true
	large := *n
	large.MTU = 9000
	for name, nets := range map[string][]*network.Network{"Refused": {&large}, "Gone": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode(n)
			r := w.reconciler(t)
			if err := r.Reconcile(t.Context()); err != nil || len(w.guarded) != 1 {
				t.Fatalf("guarded %v, %v", w.guarded, err)
			}
			id, _ := n.Link()
			w.used[id], w.nets = true, nets
			for range 2 {
				if err := r.Reconcile(t.Context()); err != nil || len(w.guarded) != 1 {
					t.Errorf("a Pod is on the link: guarded %v, %v", w.guarded, err)
				}
			}
			delete(w.used, id)
			for range 2 {
				if err := r.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if len(w.links()) != 0 || len(w.guarded) != 0 {
				t.Errorf("the last Pod has left: links %v, guarded %v", w.links(), w.guarded)
			}
		})
	}
}

// While networks may be missing, guarded links stay guarded. A new link is guarded by the
// reconciliation that creates it.
func TestGuardStaysWhileNetworksAreUnknown(t *testing.T) {
	t.Parallel()
	n := newNet(1, "storage", vlan(500))
	n.SourceGuard = true
	w := newFakeNode(n)
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil || len(w.guarded) != 1 {
		t.Fatalf("guarded %v, %v", w.guarded, err)
	}
	w.nets, w.err["Networks"] = nil, ErrNetworksIncomplete
	if err := r.Reconcile(t.Context()); err != nil || len(w.guarded) != 1 {
		t.Errorf("not all networks are known: guarded %v, %v", w.guarded, err)
	}
}

// If the kernel cannot guard, links work without a guard, and the condition reports it.
func TestNoSourceGuard(t *testing.T) {
	t.Parallel()
	n := newNet(1, "storage", vlan(500))
	n.SourceGuard = true
	w := newFakeNode(n)
	w.err["Sources"] = ErrSourceGuardUnsupported
	r := w.reconciler(t)
	if _, err := r.Parent(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatalf("an unsupported guard must not cause a retry: %v", err)
	}
	conditions := w.written[len(w.written)-1].Conditions
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == ConditionIsolated })
	if c := conditions[i]; c.Status != metav1.ConditionFalse || c.Reason != "SourcesNotGuarded" {
		t.Errorf("got %s %s: %s", c.Status, c.Reason, c.Message)
	}
}
