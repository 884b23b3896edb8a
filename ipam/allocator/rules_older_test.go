// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// A node reports only when the DanmEps are gone that an older state brought back:
// their addresses may be somebody else's by now.
func TestDeadDanmEpsAreAwaited(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		backup := w.Store.Snapshot()
		w.Release(a, "n1", a4, testbed.NoAddr())
		w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Store.Restore(backup)
		w.ObserveRollback(a)
		w.BeginRecovery(a)
		time.Sleep(10 * time.Second)
		if got := w.Reported(); got != nil {
			w.Errorf("%v has reported, with a DanmEp of a sandbox that is gone", got)
		}
		w.Store.RemoveEndpoint("ns", w.Endpoint("n1", a4, testbed.NoAddr()).Name)
		time.Sleep(2 * time.Second)
		if got := w.Reported(); !slices.Equal(got, []string{"n1"}) {
			w.Errorf("%v have reported, want n1", got)
		}
	})
}

// What is in use here stays, though an older state says that another node has it;
// and the other one, which knows that it has not, leaves the bit alone.
func TestOlderEntryTakesNothingAway(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		n1, n2 := w.Node("n1"), w.Node("n2")
		x := testbed.Static("10.0.0.7")
		w.Claim(n2, x, testbed.None())
		backup := w.Store.Snapshot()
		w.Release(n2, "n2", x.Static, testbed.NoAddr())
		w.Claim(n1, x, testbed.None())
		w.Store.Restore(backup)
		w.ObserveRollback(n1)
		w.BeginRecovery(n1, n2)
		w.Idle()
		if w.Entry("n1") != "10.0.0.7 " || w.Entry("n2") != "-" || !slices.Equal(w.Bits(), []string{"10.0.0.7"}) {
			w.Errorf("entries: n1 %q, n2 %q; bits %v; reports %v", w.Entry("n1"), w.Entry("n2"), w.Bits(), w.Reports)
		}
		if err := ipamtest.Covered(w.Store.Object(w.Net.Ref), w.Endpoints()); err != nil {
			w.Error(err)
		}
	})
}

// The same when it is an older DanmEp that says so.
func TestOlderDanmEpTakesNothingAway(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		n2 := w.Node("n2")
		x := testbed.Static("10.0.0.7")
		w.Claim(n2, x, testbed.None())
		w.Publish(n2, "n2", x.Static, testbed.NoAddr())
		w.Idle()
		backup := w.Store.Snapshot()
		w.Release(n2, "n2", x.Static, testbed.NoAddr())
		use := allocator.Use{Key: w.Key(), Owner: "ep", V4: x.Static, Static4: true, Phase: allocator.Claimed}
		w.Store.Restore(backup)
		ipam := w.IPAM().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{}
		w.Store.SetIPAM(w.Net.Ref, ipam)
		n1 := w.Node("n1", use) // its daemon has started again meanwhile
		if err := n1.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		if got := w.Entry("n1"); got != "10.0.0.7 " {
			w.Errorf("entry of n1 %q, reports %v", got, w.Reports)
		}
	})
}

// A recovery that an older state brought back has nobody's report.
func TestOlderReportsDoNotCount(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		a := w.Node("n1")
		w.Claim(a, testbed.Dynamic(), testbed.None())
		ipam := w.IPAM().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{ReportedNodes: []string{"n1", "n2"}}
		w.Store.SetIPAM(w.Net.Ref, ipam)
		a.ReportToRecovery(w.Key())
		w.Idle()
		backup := w.Store.Snapshot()
		ipam.Recovering = nil
		w.Store.SetIPAM(w.Net.Ref, ipam)
		w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Store.Restore(backup)
		w.ObserveRollback(a)
		w.BeginRecovery(a)
		if got := w.Reported(); !slices.Equal(got, []string{"n1"}) {
			w.Errorf("%v have reported, want n1 alone", got)
		}
	})
}

// A network that is as it was before its first use is no new one to a node that has
// used it.
func TestOlderThanTheFirstUse(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		a := w.Node("n1")
		backup := w.Store.Snapshot()
		used, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", used, testbed.NoAddr())
		w.Idle() // no entry is left whose seq would tell
		w.Store.Restore(backup)
		if a4, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("got %v, %v", a4, err)
		}
		w.BeginRecovery(a)
		if got := w.Reported(); !slices.Equal(got, []string{"n1"}) || w.Entry("n1") != "10.0.0.1 " {
			w.Errorf("%v have reported, entry %q", got, w.Entry("n1"))
		}
	})
}
