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

// testLog drops what is logged: a reconciler may outlive its test by a line.
func testLog(testing.TB) logr.Logger { return logr.Discard() }

// start runs the reconciler until the test ends.
func start(t *testing.T, w *world) *Reconciler {
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

func (w *world) has(names ...string) func() bool {
	return func() bool { return cmp.Equal(names, w.links()) }
}

// Both sides drive it: a network that appears, a link that somebody removes, a
// failure that passes.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(newNet(1, "a", vlan(5)))
	r := start(t, w)
	eventually(t, "the first link", w.has("a.5"))

	w.change(func(w *world) { w.nets = append(w.nets, newNet(2, "b", vlan(6))) })
	r.Trigger()
	eventually(t, "a new network's link", w.has("a.5", "b.6"))

	eventually(t, "somebody listens", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.events != nil })
	w.change(func(w *world) { w.state.Links = w.state.Links[1:] })
	w.events("a.5")
	eventually(t, "a link removed by hand is back", w.has("a.5", "b.6"))

	w.change(func(w *world) {
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
	w.change(func(w *world) { delete(w.err, "c.7") })
	eventually(t, "what failed is tried again, unasked", w.has("a.5", "b.6", "c.7"))
}

// Links that come and go with Pods are none of its business.
func TestUnrelatedLinkEventsAreIgnored(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newWorld(n)
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, _ := n.Link()
	for name, want := range map[string]bool{"veth1234": false, "ens4": true, "a.5": true, "": true} {
		r.linkChanged(name)
		_, ready := r.cachedLink(id, n.Ref)
		woken := false
		select {
		case <-r.trigger:
			woken = true
		default:
		}
		if woken != want || ready == want {
			t.Errorf("change of %q: woken %v, still ready %v; want woken %v", name, woken, ready, want)
		}
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Many Pods wait for the same new link: it is made once, and all get it.
func TestParentAtOnce(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newWorld(n)
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
