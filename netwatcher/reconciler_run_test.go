// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// testLog discards log lines: a Reconciler may log after the end of its test.
func testLog(testing.TB) logr.Logger { return logr.Discard() }

// start runs the reconciler until the test ends.
func start(t *testing.T, w *fakeNode) *Reconciler {
	t.Helper()
	r := w.reconciler(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within a minute", what)
}

func (w *fakeNode) has(names ...string) func() bool {
	return func() bool { return cmp.Equal(names, w.links()) }
}

// Run reacts to a new network, to a link that a user deletes, and to the end of a failure.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "a", vlan(5)))
	r := start(t, w)
	eventually(t, "the first link", w.has("a.5"))

	w.change(func(w *fakeNode) { w.nets = append(w.nets, newNet(2, "b", vlan(6))) })
	r.Trigger()
	eventually(t, "a new network's link", w.has("a.5", "b.6"))

	eventually(t, "the watch of link events", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.events != nil })
	w.change(func(w *fakeNode) { w.state.Links = w.state.Links[1:] })
	w.events("a.5")
	eventually(t, "the link that a user deleted", w.has("a.5", "b.6"))

	w.change(func(w *fakeNode) {
		w.nets = append(w.nets, newNet(3, "c", vlan(7)))
		w.err["c.7"] = errBroken
	})
	r.Trigger()
	eventually(t, "the failure's report", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		links := w.written[len(w.written)-1].Links
		return len(links) == 3 && links[2].State == v1.LinkError
	})
	w.change(func(w *fakeNode) { delete(w.err, "c.7") })
	eventually(t, "the retry of a failure", w.has("a.5", "b.6", "c.7"))
}

// Events of links that come and go with Pods cause no reconciliation.
func TestUnrelatedLinkEventsAreIgnored(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newFakeNode(n)
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, _ := n.Link()
	for name, want := range map[string]bool{"veth1234": false, "ens4": true, "a.5": true, "": true} {
		r.linkChanged(name)
		_, ready := r.cache.lookup(id, n.Ref)
		if triggered := r.triggered(); triggered != want || ready == want {
			t.Errorf("change of %q: triggered %v, still ready %v; want triggered %v", name, triggered, ready, want)
		}
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Many Pods wait for the same new link: all get it.
func TestParentAtOnce(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newFakeNode(n)
	r := start(t, w)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if name, err := r.Parent(t.Context(), n); name != "a.5" || err != nil {
				t.Errorf("got %q, %v", name, err)
			}
		})
	}
	wg.Wait()
}
