// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// The journal never has a seq that the object may lack, else the object would be
// taken for older state; and it has it before anything rests on the entry.
func TestSeqIsJournalledBeforeUse(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		var mu sync.Mutex
		var journal int64
		var broken error
		a := w.WarmNode(w.Store, "n1", allocator.Config{
			WarmPoolSize: -1, Cooldown: -1, Incarnation: 7,
			JournalSeq: func(_ network.Key, seq int64) error {
				mu.Lock()
				defer mu.Unlock()
				if got, there := w.IPAM().Held["n1"]; !there || seq > got.Seq {
					w.Errorf("seq %d was journalled while the entry is %+v", seq, got)
				}
				if broken == nil {
					journal = seq
				}
				return broken
			},
		})
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		mu.Lock()
		if journal != 7 {
			w.Errorf("the claim was answered with seq %d in the journal, want 7", journal)
		}
		mu.Unlock()
		w.Release(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		mu.Lock()
		if journal != 0 || w.Entry("n1") != "-" {
			w.Errorf("seq %d in the journal, entry %q", journal, w.Entry("n1"))
		}
		broken = errors.New("disk full")
		mu.Unlock()
		if a4, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, broken) {
			w.Errorf("got %v, %v, though its seq could not be journalled", a4, err)
		}
	})
}

// What a former life held is handed out again, but for what may be in use: by the
// journal, by a DanmEp, or by an interface that nobody knows of; and not what has
// become a node's own address. It rests before.
func TestRebuiltHold(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/27", ""), func(w *testbed.World) {
		w.Damaged = true // its reservation is not known to the check
		first := w.Node("n1")
		for range 6 {
			w.Claim(first, testbed.Dynamic(), testbed.None())
		}
		first.Close()
		journalled, published, live, own := testbed.Addr("10.0.0.1"), testbed.Addr("10.0.0.2"), testbed.Addr("10.0.0.3"), testbed.Addr("10.0.0.4")
		w.Store.AddEndpoint(w.Net.Ref, w.Endpoint("n1", published, testbed.NoAddr()))
		second := w.WarmNode(w.Store, "n1", allocator.Config{
			LiveAddresses: func(context.Context) (map[netip.Addr]bool, error) { return map[netip.Addr]bool{live: true}, nil },
			Reserved:      func(*network.Network) []netip.Addr { return []netip.Addr{own} },
		})
		second.Resume([]allocator.Use{{Key: w.Key(), V4: journalled, Phase: allocator.Claimed}}, nil)
		got := map[netip.Addr]bool{}
		take := func(n int) {
			for range n {
				a4, _, err := second.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
				if err != nil || got[a4] || a4.Less(testbed.Addr("10.0.0.5")) {
					w.Fatalf("got %v, %v; have %v", a4, err, got)
				}
				got[a4] = true
			}
		}
		take(3)
		if got[testbed.Addr("10.0.0.5")] || got[testbed.Addr("10.0.0.6")] {
			w.Errorf("got %v: what a former life left has not rested", got)
		}
		if slices.Contains(w.Bits(), own.String()) {
			w.Errorf("bits %v: %v is a node's own by now, and is held", w.Bits(), own)
		}
		time.Sleep(11 * time.Second)
		take(3)
		for range 2 { // the interface is still there
			if err := second.ReconcileEntries(w.Context(), w.Key()); err != nil {
				w.Fatal(err)
			}
		}
		take(20) // the rest: 30 but .1 to .4
		if a4, _, err := second.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, allocator.ErrExhausted) {
			w.Errorf("got %v, %v of a pool that is used up", a4, err)
		}
	})
}
