// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// The journal never has a seq that the object may lack, else the object would be
// taken for older state; and it has it before anything rests on the entry.
func TestSeqIsJournalledBeforeUse(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		var mu sync.Mutex
		var journal int64
		var broken error
		a := w.holder(w.store, "n1", claims.Config{
			Hold: -1, Cool: -1, Life: 7,
			Remember: func(_ claims.Key, seq int64) error {
				mu.Lock()
				defer mu.Unlock()
				if got, there := w.ipam().Held["n1"]; !there || seq > got.Seq {
					w.Errorf("seq %d was journalled while the entry is %+v", seq, got)
				}
				if broken == nil {
					journal = seq
				}
				return broken
			},
		})
		a4, _ := w.claim(a, dynamic, none)
		mu.Lock()
		if journal != 7 {
			w.Errorf("the claim was answered with seq %d in the journal, want 7", journal)
		}
		mu.Unlock()
		w.release(a, "n1", a4, no)
		w.idle()
		mu.Lock()
		if journal != 0 || w.entry("n1") != "-" {
			w.Errorf("seq %d in the journal, entry %q", journal, w.entry("n1"))
		}
		broken = errors.New("disk full")
		mu.Unlock()
		if a4, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, broken) {
			w.Errorf("got %v, %v, though its seq could not be journalled", a4, err)
		}
	})
}

// What a former life held is handed out again, but for what may be in use: by the
// journal, by a DanmEp, or by an interface that nobody knows of; and not what has
// become a node's own address. It rests before.
func TestRebuiltHold(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/27", ""), func(w *world) {
		w.damaged = true // its reservation is not known to the check
		first := w.node("n1")
		for range 6 {
			w.claim(first, dynamic, none)
		}
		first.Close()
		journalled, published, live, own := addr("10.0.0.1"), addr("10.0.0.2"), addr("10.0.0.3"), addr("10.0.0.4")
		w.store.AddEndpoint(w.net.Ref, w.endpoint("n1", published, no))
		second := w.holder(w.store, "n1", claims.Config{
			Live:     func(context.Context) (map[netip.Addr]bool, error) { return map[netip.Addr]bool{live: true}, nil },
			Reserved: func(*network.Network) []netip.Addr { return []netip.Addr{own} },
		})
		second.Resume([]claims.Use{{Key: w.key(), V4: journalled, Phase: claims.Claimed}}, nil)
		got := map[netip.Addr]bool{}
		take := func(n int) {
			for range n {
				a4, _, err := second.Claim(w.Context(), w.net, dynamic, none)
				if err != nil || got[a4] || a4.Less(addr("10.0.0.5")) {
					w.Fatalf("got %v, %v; have %v", a4, err, got)
				}
				got[a4] = true
			}
		}
		take(3)
		if got[addr("10.0.0.5")] || got[addr("10.0.0.6")] {
			w.Errorf("got %v: what a former life left has not rested", got)
		}
		if slices.Contains(w.bits(), own.String()) {
			w.Errorf("bits %v: %v is a node's own by now, and is held", w.bits(), own)
		}
		time.Sleep(11 * time.Second)
		take(3)
		for range 2 { // the interface is still there
			if err := second.Settle(w.Context(), w.key()); err != nil {
				w.Fatal(err)
			}
		}
		take(20) // the rest: 30 but .1 to .4
		if a4, _, err := second.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrExhausted) {
			w.Errorf("got %v, %v of a pool that is used up", a4, err)
		}
	})
}

// sly is a store where something happens after the n-th request.
type sly struct {
	claims.Store
	n    int
	then func()
}

func (s *sly) count() {
	if s.n--; s.n == 0 {
		s.then()
	}
}

func (s *sly) Get(ctx context.Context, ref network.Ref) (*claims.Object, error) {
	defer s.count()
	return s.Store.Get(ctx, ref)
}

func (s *sly) Endpoints(ctx context.Context, ref network.Ref) ([]claims.Endpoint, error) {
	defer s.count()
	return s.Store.Endpoints(ctx, ref)
}

// Whatever comes between the requests of an audit, it frees nothing that somebody
// covers: the entry is read before the DanmEps, and the write is of that version.
func TestAuditMeetsANode(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		loose  bool
		after  int // so many requests of the audit
		then   func(w *world, a *claims.Allocator)
		want   claims.Drift
		bits   []string
	}{
		"Published": {
			reason: "its entry was read, and the DanmEp is listed", after: 1,
			then: func(w *world, a *claims.Allocator) {
				w.publish(a, "n1", addr("10.0.0.1"), no)
				time.Sleep(3 * time.Second)
			},
			bits: []string{"10.0.0.1"},
		},
		"Claimed": {
			reason: "a claim after the list makes the write fail", loose: true, after: 2,
			then: func(w *world, a *claims.Allocator) { w.claim(a, dynamic, none) },
			want: claims.Drift{Freed: 1}, bits: []string{"10.0.0.1", "10.0.0.3"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				a := w.node("n1")
				w.claim(a, dynamic, none)
				if tc.loose {
					w.damaged = true
					w.claim(w.node("n2"), dynamic, none)
					w.dropEntry("n2")
				}
				s := claims.NewSteward(&sly{w.store, tc.after, func() { tc.then(w, a) }}, claims.StewardConfig{})
				got, err := s.Audit(w.Context(), w.key())
				if err != nil || got.Drift != tc.want || got.Conflicts != nil {
					w.Errorf("%s: Audit: %+v, %v; want %+v", tc.reason, got, err, tc.want)
				}
				if diff := cmp.Diff(tc.bits, w.bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
				if err := ipamtest.Covered(w.store.Object(w.net.Ref), w.endpoints()); err != nil {
					w.Errorf("%s: %v", tc.reason, err)
				}
			})
		})
	}
}

// dropEntry leaves the bits of a node that nobody covers.
func (w *world) dropEntry(node string) {
	ipam := w.ipam().DeepCopy()
	delete(ipam.Held, node)
	w.store.SetIPAM(w.net.Ref, ipam)
}

// endpoints are the DanmEps of the network.
func (w *world) endpoints() []claims.Endpoint {
	w.Helper()
	eps, err := w.store.Endpoints(w.Context(), w.net.Ref)
	if err != nil {
		w.Fatal(err)
	}
	return eps
}
