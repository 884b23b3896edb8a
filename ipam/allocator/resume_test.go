// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
)

// What a new life makes of what the former one left: the journal's uses, the
// node's entry, and the DanmEps. .1 is the address in question.
func TestSettle(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		journal  []allocator.Phase
		inEntry  bool
		endpoint string // the node whose DanmEp has it
		other    bool   // n2's entry has it
		bits     bool
		entry    string
	}{
		"ClaimInUse":         {"no DanmEp yet: the entry keeps covering it", []allocator.Phase{allocator.Claimed}, true, "", false, true, "10.0.0.1 "},
		"ClaimNeverJournald": {"the daemon died between claim and journal", nil, true, "", false, false, "-"},
		"ClaimWithDanmEp":    {"it died between DanmEp and journal", []allocator.Phase{allocator.Claimed}, true, "n1", false, true, "10.0.0.1 "},
		"Published":          {"the DanmEp covers it, the entry need not", []allocator.Phase{allocator.Published}, true, "n1", false, true, "-"},
		"PublishedAndGone":   {"somebody took the DanmEp away by force: covered again", []allocator.Phase{allocator.Published}, false, "", false, true, "10.0.0.1 "},
		"JournalLost":        {"the DanmEp covers what may still be in use", nil, true, "n1", false, true, "-"},
		"Releasing":          {"it died before the DanmEp went", []allocator.Phase{allocator.Releasing}, false, "n1", false, true, "10.0.0.1 "},
		"ReleasingReturned":  {"it died after the DanmEp went", []allocator.Phase{allocator.Releasing}, true, "", false, true, "10.0.0.1 "},
		"ReleasedAndTaken":   {"it died between free and journal; the address is another node's", []allocator.Phase{allocator.Releasing}, false, "n2", false, true, "-"},
		"ReleasedAndClaimed": {"the same, before the other's DanmEp", []allocator.Phase{allocator.Releasing}, false, "", true, true, "-"},
		"ClaimedByTwo":       {"an older state gave it away: report, and do not free it", []allocator.Phase{allocator.Claimed}, false, "", true, true, "-"},
		"ClaimedAndTheirs":   {"the same, with the other's DanmEp", []allocator.Phase{allocator.Claimed}, false, "n2", false, true, "-"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				w.Damaged = true // "PublishedAndGone" starts with a loose bit
				ipam := &v1.IPAMStatus{
					V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Cursor: "10.0.0.9", Pages: testbed.Page(1)},
					Held: map[string]v1.HeldAddresses{"n1": {UID: "n1-uid", Seq: 7}},
				}
				if tc.inEntry {
					ipam.Held["n1"] = v1.HeldAddresses{UID: "n1-uid", Seq: 7, V4: "10.0.0.1"}
				}
				if tc.other {
					ipam.Held["n2"] = v1.HeldAddresses{UID: "n2-uid", Seq: 1, V4: "10.0.0.1"}
				}
				w.Store.SetIPAM(w.Net.Ref, ipam)
				if tc.endpoint != "" {
					w.Store.AddEndpoint(w.Net.Ref, w.Endpoint(tc.endpoint, testbed.Addr("10.0.0.1"), testbed.NoAddr()))
				}
				var uses []allocator.Use
				for _, p := range tc.journal {
					uses = append(uses, allocator.Use{Key: w.Key(), V4: testbed.Addr("10.0.0.1"), Phase: p})
				}
				a := w.Node("n1", uses...)
				if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
					w.Fatal(err)
				}
				w.Idle()
				if got := len(w.Bits()) == 1; got != tc.bits {
					w.Errorf("%s: bits %v", tc.reason, w.Bits())
				}
				if got := w.Entry("n1"); got != tc.entry {
					w.Errorf("%s: entry %q, want %q", tc.reason, got, tc.entry)
				}
				if seq := w.IPAM().Held["n1"].Seq; tc.entry != "-" && seq != 8 {
					w.Errorf("%s: seq %d, want more than the former life's 7", tc.reason, seq)
				}
			})
		})
	}
}

func TestSettleWithoutNetworkOrEntry(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		gone := network.Key{Ref: w.Net.Ref, UID: "former"}
		if err := a.ReconcileEntries(w.Context(), w.Key(), gone); err != nil {
			w.Error(err)
		}
		if _, err := a.CollectGarbage(w.Context(), w.Key()); err != nil {
			w.Error(err)
		}
		if got := w.Store.Writes(); got != 0 {
			w.Errorf("%d writes for a network that this node has nothing of: %+v", got, w.IPAM())
		}
	})
}

// A claim at first touch settles by itself.
func TestFirstClaimSettles(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", ""), func(w *testbed.World) {
		first := w.Node("n1")
		w.Claim(first, testbed.Dynamic(), testbed.None())
		kept, _ := w.Claim(first, testbed.Dynamic(), testbed.None())
		first.Close()
		second := w.Node("n1", allocator.Use{Key: w.Key(), V4: kept, Phase: allocator.Claimed})
		got, _ := w.Claim(second, testbed.Dynamic(), testbed.None())
		if got != testbed.Addr("10.0.0.1") {
			w.Errorf("got %v, want the one that the former life lost", got)
		}
		if e := w.Entry("n1"); e != "10.0.0.1-10.0.0.2 " {
			w.Errorf("entry %q", e)
		}
	})
}

// A write of the former life that is still on its way is refused, even when
// the new life has nothing to change.
func TestDelayedWriteOfAFormerLife(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		first := w.NodeOver(store, "n1")
		kept, _ := w.Claim(first, testbed.Dynamic(), testbed.None())
		s.Set(ipamtest.OpUpdate, testbed.Faults(1, ipamtest.Late, time.Hour))
		w.ClaimAside(first)
		time.Sleep(time.Millisecond)
		first.Close()

		second := w.Node("n1", allocator.Use{Key: w.Key(), V4: kept, Phase: allocator.Claimed})
		if err := second.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		if seq := w.IPAM().Held["n1"].Seq; seq != 2 {
			w.Errorf("seq %d, want 2: a real change", seq)
		}
		store.Wait()
		if diff := cmp.Diff([]string{kept.String()}, w.Bits()); diff != "" {
			w.Errorf("the delayed write was applied: -want +got:\n%s", diff)
		}
	})
}

func TestSeqFollowsTheJournal(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := allocator.New(w.Store, allocator.Config{Node: "n1", Incarnation: 40})
		w.Nodes = append(w.Nodes, a)
		for range 2 {
			w.Claim(a, testbed.Dynamic(), testbed.None())
			if seq := w.IPAM().Held["n1"].Seq; seq != 40 {
				w.Errorf("seq %d, want the life's 40, once", seq)
			}
		}
	})
}

// What a node took over from a DanmEp, because its journal was lost, is freed when
// that turns out to be an orphan: until then it counts as in use, and stays.
func TestOrphanAfterLostJournal(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true // the DanmEp goes before its address is in the entry
		w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{
			V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Cursor: "10.0.0.9", Pages: testbed.Page(1)},
			Held: map[string]v1.HeldAddresses{"n1": {UID: "n1-uid", Seq: 7}},
		})
		ep := w.Endpoint("n1", testbed.Addr("10.0.0.1"), testbed.NoAddr())
		w.Store.AddEndpoint(w.Net.Ref, ep)
		a := w.Node("n1")
		if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		w.Store.RemoveEndpoint(ep.Namespace, ep.Name)
		if freed, err := a.CollectGarbage(w.Context(), w.Key()); freed != 0 || err != nil {
			w.Errorf("Collect() = %d, %v; want 0: the address may be in use here", freed, err)
		}
		if err := a.Free(w.Context(), w.Key(), ep.Name, ep.V4, testbed.NoAddr()); err != nil {
			w.Fatal(err)
		}
		if freed, err := a.CollectGarbage(w.Context(), w.Key()); freed != 1 || err != nil {
			w.Errorf("Collect() = %d, %v; want 1", freed, err)
		}
	})
}

// A daemon that starts does not ask for all its networks at once.
func TestSettleIsBounded(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		var keys []network.Key
		for i := range 50 {
			n := testbed.ClusterNetwork("10.0.0.0/24", "")
			n.Ref.Name = fmt.Sprintf("net-%d", i)
			keys = append(keys, network.KeyOf(w.Store.Create(n)))
		}
		store, s := w.Scripted()
		a := w.NodeOver(slow(store), "n1")
		done := make(chan error)
		go func() { done <- a.ReconcileEntries(w.Context(), keys...) }()
		synctest.Wait()
		if n := len(s.Called()); n != 16 {
			w.Errorf("%d requests at once, want 16", n)
		}
		if err := <-done; err != nil {
			w.Error(err)
		}
		if n := len(s.Called()); n != len(keys) {
			w.Errorf("%d requests for %d networks", n, len(keys))
		}
	})
}
