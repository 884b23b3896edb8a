// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// What a new life makes of what the former one left: the journal's uses, the
// node's entry, and the DanmEps. .1 is the address in question.
func TestSettle(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		journal  []claims.Phase
		inEntry  bool
		endpoint string // the node whose DanmEp has it
		other    bool   // n2's entry has it
		bits     bool
		entry    string
	}{
		"ClaimInUse":         {"no DanmEp yet: the entry keeps covering it", []claims.Phase{claims.Claimed}, true, "", false, true, "10.0.0.1 "},
		"ClaimNeverJournald": {"the daemon died between claim and journal", nil, true, "", false, false, "-"},
		"ClaimWithDanmEp":    {"it died between DanmEp and journal", []claims.Phase{claims.Claimed}, true, "n1", false, true, "10.0.0.1 "},
		"Published":          {"the DanmEp covers it, the entry need not", []claims.Phase{claims.Published}, true, "n1", false, true, "-"},
		"PublishedAndGone":   {"somebody took the DanmEp away by force: covered again", []claims.Phase{claims.Published}, false, "", false, true, "10.0.0.1 "},
		"JournalLost":        {"the DanmEp covers what may still be in use", nil, true, "n1", false, true, "-"},
		"Releasing":          {"it died before the DanmEp went", []claims.Phase{claims.Releasing}, false, "n1", false, true, "10.0.0.1 "},
		"ReleasingReturned":  {"it died after the DanmEp went", []claims.Phase{claims.Releasing}, true, "", false, true, "10.0.0.1 "},
		"ReleasedAndTaken":   {"it died between free and journal; the address is another node's", []claims.Phase{claims.Releasing}, false, "n2", false, true, "-"},
		"ReleasedAndClaimed": {"the same, before the other's DanmEp", []claims.Phase{claims.Releasing}, false, "", true, true, "-"},
		"ClaimedByTwo":       {"an older state gave it away: report, and do not free it", []claims.Phase{claims.Claimed}, false, "", true, true, "-"},
		"ClaimedAndTheirs":   {"the same, with the other's DanmEp", []claims.Phase{claims.Claimed}, false, "n2", false, true, "-"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				w.damaged = true // "PublishedAndGone" starts with a loose bit
				ipam := &v1.IPAMStatus{
					V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Cursor: "10.0.0.9", Pages: page(1)},
					Held: map[string]v1.HeldAddresses{"n1": {UID: "n1-uid", Seq: 7}},
				}
				if tc.inEntry {
					ipam.Held["n1"] = v1.HeldAddresses{UID: "n1-uid", Seq: 7, V4: "10.0.0.1"}
				}
				if tc.other {
					ipam.Held["n2"] = v1.HeldAddresses{UID: "n2-uid", Seq: 1, V4: "10.0.0.1"}
				}
				w.store.SetIPAM(w.net.Ref, ipam)
				if tc.endpoint != "" {
					w.store.AddEndpoint(w.net.Ref, w.endpoint(tc.endpoint, addr("10.0.0.1"), no))
				}
				var uses []claims.Use
				for _, p := range tc.journal {
					uses = append(uses, claims.Use{Key: w.key(), V4: addr("10.0.0.1"), Phase: p})
				}
				a := w.node("n1", uses...)
				if err := a.Settle(w.Context(), w.key()); err != nil {
					w.Fatal(err)
				}
				w.idle()
				if got := len(w.bits()) == 1; got != tc.bits {
					w.Errorf("%s: bits %v", tc.reason, w.bits())
				}
				if got := w.entry("n1"); got != tc.entry {
					w.Errorf("%s: entry %q, want %q", tc.reason, got, tc.entry)
				}
				if seq := w.ipam().Held["n1"].Seq; tc.entry != "-" && seq != 8 {
					w.Errorf("%s: seq %d, want more than the former life's 7", tc.reason, seq)
				}
			})
		})
	}
}

// page is a bitmap with the first addresses after the network address set.
func page(n int) map[string]string {
	s := map[int]string{1: "Ag", 3: "Dg"}[n]
	for len(s) < 171 {
		s += "A"
	}
	return map[string]string{"0": s + "="}
}

func TestSettleWithoutNetworkOrEntry(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		gone := claims.Key{Ref: w.net.Ref, UID: "former"}
		if err := a.Settle(w.Context(), w.key(), gone); err != nil {
			w.Error(err)
		}
		if _, err := a.Collect(w.Context(), w.key()); err != nil {
			w.Error(err)
		}
		if got := w.store.Writes(); got != 0 {
			w.Errorf("%d writes for a network that this node has nothing of: %+v", got, w.ipam())
		}
	})
}

// A claim at first touch settles by itself.
func TestFirstClaimSettles(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/30", ""), func(w *world) {
		first := w.node("n1")
		w.claim(first, dynamic, none)
		kept, _ := w.claim(first, dynamic, none)
		first.Close()
		second := w.node("n1", claims.Use{Key: w.key(), V4: kept, Phase: claims.Claimed})
		got, _ := w.claim(second, dynamic, none)
		if got != addr("10.0.0.1") {
			w.Errorf("got %v, want the one that the former life lost", got)
		}
		if e := w.entry("n1"); e != "10.0.0.1-10.0.0.2 " {
			w.Errorf("entry %q", e)
		}
	})
}

// A write of the former life that is still on its way is refused, even when
// the new life has nothing to change.
func TestDelayedWriteOfAFormerLife(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		first := w.nodeOver(store, "n1")
		kept, _ := w.claim(first, dynamic, none)
		s.set(ipamtest.OpUpdate, faults(1, ipamtest.Late, time.Hour))
		w.claimAside(first)
		time.Sleep(time.Millisecond)
		first.Close()

		second := w.node("n1", claims.Use{Key: w.key(), V4: kept, Phase: claims.Claimed})
		if err := second.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		if seq := w.ipam().Held["n1"].Seq; seq != 2 {
			w.Errorf("seq %d, want 2: a real change", seq)
		}
		store.Wait()
		if diff := cmp.Diff([]string{kept.String()}, w.bits()); diff != "" {
			w.Errorf("the delayed write was applied: -want +got:\n%s", diff)
		}
	})
}

func TestSeqFollowsTheJournal(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := claims.New(w.store, claims.Config{Node: "n1", Life: 40})
		w.nodes = append(w.nodes, a)
		for range 2 {
			w.claim(a, dynamic, none)
			if seq := w.ipam().Held["n1"].Seq; seq != 40 {
				w.Errorf("seq %d, want the life's 40, once", seq)
			}
		}
	})
}

// What a node took over from a DanmEp, because its journal was lost, is freed when
// that turns out to be an orphan: until then it counts as in use, and stays.
func TestOrphanAfterLostJournal(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true // the DanmEp goes before its address is in the entry
		w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{
			V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Cursor: "10.0.0.9", Pages: page(1)},
			Held: map[string]v1.HeldAddresses{"n1": {UID: "n1-uid", Seq: 7}},
		})
		ep := w.endpoint("n1", addr("10.0.0.1"), no)
		w.store.AddEndpoint(w.net.Ref, ep)
		a := w.node("n1")
		if err := a.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		w.store.RemoveEndpoint(ep.Namespace, ep.Name)
		if freed, err := a.Collect(w.Context(), w.key()); freed != 0 || err != nil {
			w.Errorf("Collect() = %d, %v; want 0: the address may be in use here", freed, err)
		}
		if err := a.Free(w.Context(), w.key(), ep.Name, ep.V4, no); err != nil {
			w.Fatal(err)
		}
		if freed, err := a.Collect(w.Context(), w.key()); freed != 1 || err != nil {
			w.Errorf("Collect() = %d, %v; want 1", freed, err)
		}
	})
}

// A daemon that starts does not ask for all its networks at once.
func TestSettleIsBounded(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		var keys []claims.Key
		for i := range 50 {
			n := clusterNetwork("10.0.0.0/24", "")
			n.Ref.Name = fmt.Sprintf("net-%d", i)
			keys = append(keys, claims.KeyOf(w.store.Create(n)))
		}
		store, s := w.scripted()
		a := w.nodeOver(slow(store), "n1")
		done := make(chan error)
		go func() { done <- a.Settle(w.Context(), keys...) }()
		synctest.Wait()
		if n := len(s.called()); n != 16 {
			w.Errorf("%d requests at once, want 16", n)
		}
		if err := <-done; err != nil {
			w.Error(err)
		}
		if n := len(s.called()); n != len(keys) {
			w.Errorf("%d requests for %d networks", n, len(keys))
		}
	})
}
