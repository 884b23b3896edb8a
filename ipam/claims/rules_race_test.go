// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// between is a store in which something happens after a request was served and
// before its answer is there.
type between struct {
	claims.Store
	get, list, update func()
}

func (b *between) Get(ctx context.Context, ref network.Ref) (*claims.Object, error) {
	o, err := b.Store.Get(ctx, ref)
	if b.get != nil {
		b.get()
	}
	return o, err
}

func (b *between) Update(ctx context.Context, o *claims.Object) (*claims.Object, error) {
	o, err := b.Store.Update(ctx, o)
	if b.update != nil {
		b.update()
	}
	return o, err
}

func (b *between) Endpoints(ctx context.Context, ref network.Ref) ([]claims.Endpoint, error) {
	list, err := b.Store.Endpoints(ctx, ref)
	if b.list != nil {
		b.list()
	}
	return list, err
}

// The watch may be ahead of a read that is under way: that is no older state.
func TestWatchAheadOfARead(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		other := w.node("n2")
		store := &between{Store: w.store}
		a := w.nodeOver(store, "n1")
		w.claim(a, dynamic, none)
		store.get = func() {
			store.get = nil
			w.claim(other, dynamic, none)
			a.Look(w.key(), w.store.Object(w.net.Ref).ResourceVersion)
		}
		w.claim(a, dynamic, none)
		if len(w.reports) > 0 || w.ipam().Recovering != nil {
			w.Errorf("recovering %v, reports %v", w.ipam().Recovering, w.reports)
		}
	})
}

// A list of DanmEps says nothing of one that was made while it was under way: its
// address would stay in the entry for as long as the Pod lives.
func TestPublishedDuringTheList(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store := &between{Store: w.store}
		a := w.nodeOver(store, "n1")
		a4, _ := w.claim(a, dynamic, none)
		store.list = func() {
			store.list = nil
			w.publish(a, "n1", a4, no)
		}
		w.damaged = true
		a.Missing(w.key(), "another", no, no)
		w.idle()
		if got := w.entry("n1"); got != " " || w.rollback("n1") == nil { // it has the report alone
			w.Errorf("entry %q: the DanmEp covers the address", got)
		}
	})
}

// An older copy that is written over the object has a new version: the node knows it
// by its own entry, which nobody else writes.
func TestOlderCopyInPlace(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		a, b := w.node("n1"), w.node("n2")
		w.claim(a, dynamic, none)
		w.claim(b, dynamic, none)
		old := w.ipam().DeepCopy()
		a4, _ := w.claim(a, dynamic, none)
		w.store.SetIPAM(w.net.Ref, old)
		if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); err == nil {
			w.Error("an address was given out of an older copy")
		}
		w.begins(a, b)
		s := claims.NewSteward(w.store, claims.StewardConfig{})
		if awaited, err := s.Recover(w.Context(), w.key(), []string{"n1", "n2"}, nil); err != nil || awaited != nil {
			w.Fatalf("awaited %v: %v", awaited, err)
		}
		if b4, _ := w.claim(b, dynamic, none); b4 == a4 {
			w.Errorf("%v is on two nodes", b4)
		}
	})
}

// A claim of the former life that is late finds no entry to conflict with: it is freed,
// and no sign of older state.
func TestLateClaimIsNoOlderState(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.claim(w.node("n2"), dynamic, none)
		a := w.holder(w.store, "n1", claims.Config{Life: 2, Hold: -1, Cool: -1})
		if err := a.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		late := w.holder(w.store, "n1", claims.Config{Life: 1, Hold: -1, Cool: -1})
		w.claim(late, dynamic, none)
		late.Close()
		if err := a.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		if rec := w.ipam().Recovering; rec != nil || w.entry("n1") != "-" || len(w.bits()) != 1 {
			w.Errorf("recovering %v, entry %q, bits %v, reports %v", rec, w.entry("n1"), w.bits(), w.reports)
		}
	})
}

// When the state goes back, each node finds out for itself: one begins the recovery,
// the others join it, and the reports of those before them count.
func TestRecoveryIsJoined(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		a, b := w.node("n1"), w.node("n2")
		w.claim(a, dynamic, none)
		old := w.store.Snapshot()
		for range 5 {
			w.claim(b, dynamic, none)
		}
		newest := w.store.Object(w.net.Ref).ResourceVersion
		for _, n := range w.nodes {
			n.Look(w.key(), newest)
		}
		w.store.Rewind(old)
		a.Look(w.key(), w.store.Object(w.net.Ref).ResourceVersion)
		synctest.Wait()
		w.begins(a)
		since := w.ipam().Recovering.StartTime
		b.Look(w.key(), w.store.Object(w.net.Ref).ResourceVersion)
		b.Reassert(w.key())
		time.Sleep(time.Second)
		rec := w.ipam().Recovering
		if !rec.StartTime.Equal(&since) || !slices.Equal(rec.ReportedNodes, []string{"n1", "n2"}) {
			w.Errorf("recovering %+v, want that of %v with both reports", rec, since)
		}
	})
}

// The state may go back once more while a node reports to the recovery: the answer to
// its write says nothing about that.
func TestOlderWhileAReportIsWritten(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		store := &between{Store: w.store}
		a := w.nodeOver(store, "n1")
		w.claim(a, dynamic, none)
		ipam := w.ipam().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{StartTime: metav1.NowMicro()}
		w.store.SetIPAM(w.net.Ref, ipam)
		store.update = func() {
			store.update = nil
			a.Look(w.key(), "1000000")
			a.Look(w.key(), "1")
		}
		a.Reassert(w.key())
		synctest.Wait()
		if r := w.rollback("n1"); r == nil || r.Reason != v1.RollbackOlderResourceVersion {
			w.Errorf("n1 reports %+v to %+v, want that the object is older", r, w.ipam().Recovering)
		}
	})
}

// A node that was cut off cannot tell whether its entry is older or was evicted: it
// gives out nothing until it knows.
func TestCutOffDoesNotGuess(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		var usable, gone atomic.Bool
		usable.Store(true)
		a := claims.New(w.store, claims.Config{
			Node: "n1", NodeUID: "n1-uid", Hold: -1, Cool: -1, Usable: usable.Load, Gone: gone.Load,
		})
		w.nodes = append(w.nodes, a)
		w.claim(a, dynamic, none)
		old := w.ipam().DeepCopy()
		w.claim(a, dynamic, none)
		usable.Store(false)
		w.store.SetIPAM(w.net.Ref, old)
		if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("a claim while it is not known: %v, want ErrTryAgain", err)
		}
		if w.rollback("n1") != nil {
			w.Error("the network recovers, though the node may have been evicted")
		}
		usable.Store(true)
		if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) || w.rollback("n1") == nil {
			w.Errorf("a claim once the Node is known to be there: %v, reported %v", err, w.rollback("n1"))
		}
	})
}

// A daemon that starts anew knows of its entry what the journal has: the seq.
func TestSmallerSeqAfterARestart(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.claim(w.node("n1"), dynamic, none)
		a := claims.New(w.store, claims.Config{Node: "n1", NodeUID: "n1-uid", Hold: -1, Cool: -1})
		w.nodes = append(w.nodes, a)
		a.Resume([]claims.Use{{Key: w.key(), Owner: "ep", V4: addr("10.0.0.1"), Phase: claims.Claimed}}, map[claims.Key]int64{w.key(): 7})
		if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) || w.rollback("n1") == nil {
			w.Errorf("claim: %v, reported %v", err, w.rollback("n1"))
		}
	})
}
