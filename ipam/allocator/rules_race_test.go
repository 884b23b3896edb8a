// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// The watch may be ahead of a read that is under way: that is no older state.
func TestWatchAheadOfARead(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		other := w.Node("n2")
		store := &testbed.Between{Store: w.Store}
		a := w.NodeOver(store, "n1")
		w.Claim(a, testbed.Dynamic(), testbed.None())
		store.AfterGet = func() {
			store.AfterGet = nil
			w.Claim(other, testbed.Dynamic(), testbed.None())
			a.ObserveVersion(w.Key(), w.Store.Object(w.Net.Ref).ResourceVersion)
		}
		w.Claim(a, testbed.Dynamic(), testbed.None())
		if len(w.Reports) > 0 || w.IPAM().Recovering != nil {
			w.Errorf("recovering %v, reports %v", w.IPAM().Recovering, w.Reports)
		}
	})
}

// A list of DanmEps says nothing of one that was made while it was under way: its
// address would stay in the entry for as long as the Pod lives.
func TestPublishedDuringTheList(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store := &testbed.Between{Store: w.Store}
		a := w.NodeOver(store, "n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		store.AfterList = func() {
			store.AfterList = nil
			w.Publish(a, "n1", a4, testbed.NoAddr())
		}
		w.Damaged = true
		a.DanmEpMissing(w.Key(), "another", testbed.NoAddr(), testbed.NoAddr())
		w.Idle()
		if got := w.Entry("n1"); got != " " || w.Rollback("n1") == nil { // it has the report alone
			w.Errorf("entry %q: the DanmEp covers the address", got)
		}
	})
}

// An older copy that is written over the object has a new version: the node knows it
// by its own entry, which nobody else writes.
func TestOlderCopyInPlace(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		a, b := w.Node("n1"), w.Node("n2")
		w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Claim(b, testbed.Dynamic(), testbed.None())
		old := w.IPAM().DeepCopy()
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Store.SetIPAM(w.Net.Ref, old)
		if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); err == nil {
			w.Error("an address was given out of an older copy")
		}
		w.BeginRecovery(a, b)
		s := gc.NewCollector(w.Store, gc.Config{})
		if awaited, err := s.Recover(w.Context(), w.Key(), []string{"n1", "n2"}, nil); err != nil || awaited != nil {
			w.Fatalf("awaited %v: %v", awaited, err)
		}
		if b4, _ := w.Claim(b, testbed.Dynamic(), testbed.None()); b4 == a4 {
			w.Errorf("%v is on two nodes", b4)
		}
	})
}

// A claim of the former life that is late finds no entry to conflict with: it is freed,
// and no sign of older state.
func TestLateClaimIsNoOlderState(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None())
		a := w.WarmNode(w.Store, "n1", allocator.Config{Incarnation: 2, WarmPoolSize: -1, Cooldown: -1})
		if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		late := w.WarmNode(w.Store, "n1", allocator.Config{Incarnation: 1, WarmPoolSize: -1, Cooldown: -1})
		w.Claim(late, testbed.Dynamic(), testbed.None())
		late.Close()
		if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		if rec := w.IPAM().Recovering; rec != nil || w.Entry("n1") != "-" || len(w.Bits()) != 1 {
			w.Errorf("recovering %v, entry %q, bits %v, reports %v", rec, w.Entry("n1"), w.Bits(), w.Reports)
		}
	})
}

// When the state goes back, each node finds out for itself: one begins the recovery,
// the others join it, and the reports of those before them count.
func TestRecoveryIsJoined(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		a, b := w.Node("n1"), w.Node("n2")
		w.Claim(a, testbed.Dynamic(), testbed.None())
		old := w.Store.Snapshot()
		for range 5 {
			w.Claim(b, testbed.Dynamic(), testbed.None())
		}
		newest := w.Store.Object(w.Net.Ref).ResourceVersion
		for _, n := range w.Nodes {
			n.ObserveVersion(w.Key(), newest)
		}
		w.Store.Rewind(old)
		a.ObserveVersion(w.Key(), w.Store.Object(w.Net.Ref).ResourceVersion)
		synctest.Wait()
		w.BeginRecovery(a)
		since := w.IPAM().Recovering.StartTime
		b.ObserveVersion(w.Key(), w.Store.Object(w.Net.Ref).ResourceVersion)
		b.ReportToRecovery(w.Key())
		time.Sleep(time.Second)
		rec := w.IPAM().Recovering
		if !rec.StartTime.Equal(&since) || !slices.Equal(rec.ReportedNodes, []string{"n1", "n2"}) {
			w.Errorf("recovering %+v, want that of %v with both reports", rec, since)
		}
	})
}

// The state may go back once more while a node reports to the recovery: the answer to
// its write says nothing about that.
func TestOlderWhileAReportIsWritten(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		store := &testbed.Between{Store: w.Store}
		a := w.NodeOver(store, "n1")
		w.Claim(a, testbed.Dynamic(), testbed.None())
		ipam := w.IPAM().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{StartTime: metav1.NowMicro()}
		w.Store.SetIPAM(w.Net.Ref, ipam)
		store.AfterUpdate = func() {
			store.AfterUpdate = nil
			a.ObserveVersion(w.Key(), "1000000")
			a.ObserveVersion(w.Key(), "1")
		}
		a.ReportToRecovery(w.Key())
		synctest.Wait()
		if r := w.Rollback("n1"); r == nil || r.Reason != v1.RollbackOlderResourceVersion {
			w.Errorf("n1 reports %+v to %+v, want that the object is older", r, w.IPAM().Recovering)
		}
	})
}

// A node that was cut off cannot tell whether its entry is older or was evicted: it
// gives out nothing until it knows.
func TestCutOffDoesNotGuess(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		var usable, gone atomic.Bool
		usable.Store(true)
		a := allocator.New(w.Store, allocator.Config{
			Node: "n1", NodeUID: "n1-uid", WarmPoolSize: -1, Cooldown: -1, Usable: usable.Load, NodeGone: gone.Load,
		})
		w.Nodes = append(w.Nodes, a)
		w.Claim(a, testbed.Dynamic(), testbed.None())
		old := w.IPAM().DeepCopy()
		w.Claim(a, testbed.Dynamic(), testbed.None())
		usable.Store(false)
		w.Store.SetIPAM(w.Net.Ref, old)
		if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("a claim while it is not known: %v, want ErrTryAgain", err)
		}
		if w.Rollback("n1") != nil {
			w.Error("the network recovers, though the node may have been evicted")
		}
		usable.Store(true)
		if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) || w.Rollback("n1") == nil {
			w.Errorf("a claim once the Node is known to be there: %v, reported %v", err, w.Rollback("n1"))
		}
	})
}

// A daemon that starts anew knows of its entry what the journal has: the seq.
func TestSmallerSeqAfterARestart(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Claim(w.Node("n1"), testbed.Dynamic(), testbed.None())
		a := allocator.New(w.Store, allocator.Config{Node: "n1", NodeUID: "n1-uid", WarmPoolSize: -1, Cooldown: -1})
		w.Nodes = append(w.Nodes, a)
		a.Resume([]allocator.Use{{Key: w.Key(), Owner: "ep", V4: testbed.Addr("10.0.0.1"), Phase: allocator.Claimed}}, map[network.Key]int64{w.Key(): 7})
		if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) || w.Rollback("n1") == nil {
			w.Errorf("claim: %v, reported %v", err, w.Rollback("n1"))
		}
	})
}
