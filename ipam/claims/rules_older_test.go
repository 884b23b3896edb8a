// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// looks has an allocator find out about the present version.
func (w *world) looks(a *claims.Allocator) {
	w.Helper()
	a.Look(w.key(), w.store.Object(w.net.Ref).ResourceVersion)
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// rollback returns what a node reports of one, nil for nothing.
func (w *world) rollback(node string) *v1.RollbackReport { return w.ipam().Held[node].Rollback }

// begins has the controller start the recovery that n1 and n2 ask for, and nodes report
// to it, as their watches tell them.
func (w *world) begins(nodes ...*claims.Allocator) {
	w.Helper()
	s := claims.NewSteward(w.store, claims.StewardConfig{})
	if awaited, err := s.Recover(w.Context(), w.key(), []string{"n1", "n2"}, nil); err != nil || len(awaited) == 0 {
		w.Fatalf("Recover awaits %v, %v; want a recovery to begin", awaited, err)
	}
	for _, a := range nodes {
		a.Reassert(w.key())
	}
	time.Sleep(time.Second) // reports that meet each other are written again after a pause
}

// done returns who has reported to the network's recovery.
func (w *world) done() []string {
	w.Helper()
	rec := w.ipam().Recovering
	if rec == nil {
		w.Fatal("the network does not recover")
	}
	return rec.ReportedNodes
}

// A node reports only when the DanmEps are gone that an older state brought back:
// their addresses may be somebody else's by now.
func TestDeadDanmEpsAreAwaited(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		w.idle()
		backup := w.store.Snapshot()
		w.release(a, "n1", a4, no)
		w.claim(a, dynamic, none)
		w.store.Restore(backup)
		w.looks(a)
		w.begins(a)
		time.Sleep(10 * time.Second)
		if got := w.done(); got != nil {
			w.Errorf("%v has reported, with a DanmEp of a sandbox that is gone", got)
		}
		w.store.RemoveEndpoint("ns", w.endpoint("n1", a4, no).Name)
		time.Sleep(2 * time.Second)
		if got := w.done(); !slices.Equal(got, []string{"n1"}) {
			w.Errorf("%v have reported, want n1", got)
		}
	})
}

// What is in use here stays, though an older state says that another node has it;
// and the other one, which knows that it has not, leaves the bit alone.
func TestOlderEntryTakesNothingAway(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		n1, n2 := w.node("n1"), w.node("n2")
		x := static("10.0.0.7")
		w.claim(n2, x, none)
		backup := w.store.Snapshot()
		w.release(n2, "n2", x.Static, no)
		w.claim(n1, x, none)
		w.store.Restore(backup)
		w.looks(n1)
		w.begins(n1, n2)
		w.idle()
		if w.entry("n1") != "10.0.0.7 " || w.entry("n2") != "-" || !slices.Equal(w.bits(), []string{"10.0.0.7"}) {
			w.Errorf("entries: n1 %q, n2 %q; bits %v; reports %v", w.entry("n1"), w.entry("n2"), w.bits(), w.reports)
		}
		if err := ipamtest.Covered(w.store.Object(w.net.Ref), w.endpoints()); err != nil {
			w.Error(err)
		}
	})
}

// The same when it is an older DanmEp that says so.
func TestOlderDanmEpTakesNothingAway(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		n2 := w.node("n2")
		x := static("10.0.0.7")
		w.claim(n2, x, none)
		w.publish(n2, "n2", x.Static, no)
		w.idle()
		backup := w.store.Snapshot()
		w.release(n2, "n2", x.Static, no)
		use := claims.Use{Key: w.key(), Owner: "ep", V4: x.Static, Static4: true, Phase: claims.Claimed}
		w.store.Restore(backup)
		ipam := w.ipam().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{}
		w.store.SetIPAM(w.net.Ref, ipam)
		n1 := w.node("n1", use) // its daemon has started again meanwhile
		if err := n1.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		if got := w.entry("n1"); got != "10.0.0.7 " {
			w.Errorf("entry of n1 %q, reports %v", got, w.reports)
		}
	})
}

// A recovery that an older state brought back has nobody's report.
func TestOlderReportsDoNotCount(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		a := w.node("n1")
		w.claim(a, dynamic, none)
		ipam := w.ipam().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{ReportedNodes: []string{"n1", "n2"}}
		w.store.SetIPAM(w.net.Ref, ipam)
		a.Reassert(w.key())
		w.idle()
		backup := w.store.Snapshot()
		ipam.Recovering = nil
		w.store.SetIPAM(w.net.Ref, ipam)
		w.claim(a, dynamic, none)
		w.store.Restore(backup)
		w.looks(a)
		w.begins(a)
		if got := w.done(); !slices.Equal(got, []string{"n1"}) {
			w.Errorf("%v have reported, want n1 alone", got)
		}
	})
}

// A network that is as it was before its first use is no new one to a node that has
// used it.
func TestOlderThanTheFirstUse(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		a := w.node("n1")
		backup := w.store.Snapshot()
		used, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", used, no)
		w.idle() // no entry is left whose seq would tell
		w.store.Restore(backup)
		if a4, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("got %v, %v", a4, err)
		}
		w.begins(a)
		if got := w.done(); !slices.Equal(got, []string{"n1"}) || w.entry("n1") != "10.0.0.1 " {
			w.Errorf("%v have reported, entry %q", got, w.entry("n1"))
		}
	})
}

// The Steward frees nothing of an object that is older than it was: it starts the
// recovery, so that its write does not hide that from the nodes.
func TestAuditOfAnOlderObject(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		w.claim(w.node("n1"), dynamic, none)
		w.dropEntry("n1")
		s := claims.NewSteward(w.store, claims.StewardConfig{})
		s.Look(w.key(), "1000000")
		if got, err := s.Audit(w.Context(), w.key()); !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("Audit: %+v, %v, want ErrTryAgain", got, err)
		}
		if got := w.done(); got != nil || len(w.bits()) != 1 {
			w.Errorf("%v have reported, bits %v", got, w.bits())
		}
	})
}
