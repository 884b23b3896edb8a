// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

func TestLifeOfAnAddress(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *world) {
		a := w.node("n1")
		a4, a6 := w.claim(a, dynamic, dynamic)
		steps := []struct {
			reason string
			do     func() error
			bits   []string
			entry  string
		}{
			{
				"a claim is covered by the entry until its DanmEp exists",
				func() error { w.idle(); return nil },
				[]string{"10.0.0.1", "fd00::1"}, "10.0.0.1 fd00::1",
			},
			{
				"then by the DanmEp alone: the entry goes after a while",
				func() error { w.publish(a, "n1", a4, a6); w.idle(); return nil },
				[]string{"10.0.0.1", "fd00::1"}, "-",
			},
			{
				"back into the entry before the DanmEp goes",
				func() error { return a.Return(w.Context(), w.key(), "", a4, a6) },
				[]string{"10.0.0.1", "fd00::1"}, "10.0.0.1 fd00::1",
			},
			{
				"a second return changes nothing",
				func() error { return a.Return(w.Context(), w.key(), "", a4, a6) },
				[]string{"10.0.0.1", "fd00::1"}, "10.0.0.1 fd00::1",
			},
			{
				"bit and entry in one write",
				func() error {
					w.store.RemoveEndpoint("ns", w.endpoint("n1", a4, a6).Name)
					return a.Free(w.Context(), w.key(), "", a4, a6)
				},
				nil, "-",
			},
			{
				"a second release changes nothing",
				func() error {
					return errors.Join(a.Return(w.Context(), w.key(), "", a4, a6), a.Free(w.Context(), w.key(), "", a4, a6))
				},
				nil, "-",
			},
		}
		for _, s := range steps {
			if err := s.do(); err != nil {
				w.Fatalf("%s: %v", s.reason, err)
			}
			if diff := cmp.Diff(s.bits, w.bits()); diff != "" {
				w.Errorf("%s: bits, -want +got:\n%s", s.reason, diff)
			}
			if got := w.entry("n1"); got != s.entry {
				w.Errorf("%s: entry %q, want %q", s.reason, got, s.entry)
			}
		}
		if o := w.store.Object(w.net.Ref); o.Allocated != 0 {
			w.Errorf("allocated %d, want 0", o.Allocated)
		}
	})
}

// The bug that hands out duplicates in DANM: a release that comes twice frees
// the address of whoever has it by now.
func TestSecondReleaseFreesNobodyElse(t *testing.T) {
	net := clusterNetwork("10.0.0.0/31", "")
	inWorld(t, net, func(w *world) {
		n1, n2 := w.node("n1"), w.node("n2")
		a4, _ := w.claim(n1, static("10.0.0.0"), none)
		w.publish(n1, "n1", a4, no)
		w.release(n1, "n1", a4, no)
		w.claim(n2, static("10.0.0.0"), none)
		w.publish(n2, "n2", a4, no)
		w.idle()
		w.release(n1, "n1", a4, no)
		n1.Discard(w.net, a4, no)
		w.idle()
		if diff := cmp.Diff([]string{"10.0.0.0"}, w.bits()); diff != "" {
			w.Errorf("the other node's address: -want +got:\n%s", diff)
		}
	})
}

func TestReleaseOfAFormerNetworkIsANoop(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		n1 := w.node("n1", claims.Use{Key: w.key(), V4: addr("10.0.0.1"), Phase: claims.Published})
		w.store.Delete(w.net.Ref)
		former := w.key()
		w.net = w.store.Create(clusterNetwork("10.0.0.0/24", ""))
		w.claim(w.node("n2"), dynamic, none)
		for _, key := range []claims.Key{former, former, {Ref: w.net.Ref, UID: "never was"}} {
			if err := n1.Return(w.Context(), key, "", addr("10.0.0.1"), no); err != nil {
				w.Error(err)
			}
			if err := n1.Free(w.Context(), key, "", addr("10.0.0.1"), no); err != nil {
				w.Error(err)
			}
		}
		w.store.Delete(w.net.Ref)
		n1.Discard(w.net, addr("10.0.0.1"), no)
		w.idle()
		if diff := cmp.Diff([]string{"10.0.0.1"}, w.bits()); diff != "" {
			w.Errorf("the new network's address: -want +got:\n%s", diff)
		}
	})
}

func TestDiscardServesTheNextClaimOfAFullPool(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/30", ""), func(w *world) {
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		w.claim(a, dynamic, none)
		a.Discard(w.net, a4, no)
		if got, _ := w.claim(a, dynamic, none); got != a4 {
			w.Errorf("got %v, want %v: it was given back before", got, a4)
		}
	})
}

// An attachment whose DanmEp could never be made is freed without one.
func TestFreeWithoutReturn(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		if err := a.Free(w.Context(), w.key(), "", a4, no); err != nil {
			w.Fatal(err)
		}
		if w.bits() != nil || w.entry("n1") != "-" {
			w.Errorf("left: %v, entry %q", w.bits(), w.entry("n1"))
		}
	})
}

func TestReleasesWorkWhileTheNetworkIsDeleted(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		n1, n2 := w.node("n1"), w.node("n2")
		a1, _ := w.claim(n1, dynamic, none)
		a2, _ := w.claim(n2, dynamic, none)
		w.publish(n1, "n1", a1, no)
		w.publish(n2, "n2", a2, no)
		w.idle()
		w.store.Delete(w.net.Ref)
		w.release(n1, "n1", a1, no)
		w.idle()
		if err := w.endDeletion(w.store); err != nil || w.store.Object(w.net.Ref) == nil {
			w.Fatalf("the finalizer went while a DanmEp was left (%v)", err)
		}
		w.release(n2, "n2", a2, no)
		w.idle()
		if o := w.store.Object(w.net.Ref); o == nil {
			w.Fatal("a node took the finalizer off: it cannot see what other nodes do")
		}
		if err := w.endDeletion(w.store); err != nil || w.store.Object(w.net.Ref) != nil {
			w.Errorf("the last release left the network there (%v)", err)
		}
	})
}

// Published addresses go along with the next write: no write of their own.
func TestPublishedLeaveWithTheNextWrite(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		before := w.store.Writes()
		time.Sleep(time.Second)
		w.claim(a, dynamic, none)
		if got := w.store.Writes() - before; got != 1 || w.entry("n1") != "10.0.0.2 " {
			w.Errorf("%d writes, entry %q; want 1, and the second address", got, w.entry("n1"))
		}
		before = w.store.Writes()
		w.idle()
		if got := w.store.Writes() - before; got != 0 {
			w.Errorf("%d writes while nothing happened", got)
		}
	})
}

// The entry of a network without addresses is what keeps the network from being
// deleted under a Pod: it must go with the last Pod, however that one ends.
func TestEntryWithoutAddressesGoes(t *testing.T) {
	t.Parallel()
	free := func(w *world, a *claims.Allocator, owner string) error {
		return a.Free(w.Context(), w.key(), owner, no, no)
	}
	cases := map[string]struct {
		reason string
		uses   []claims.Use
		claims int
		end    func(*world, *claims.Allocator) error
		entry  string
	}{
		"DELBeforeDanmEp": {
			reason: "its DanmEp is never made", claims: 1,
			end: func(w *world, a *claims.Allocator) error { return free(w, a, "one") }, entry: "-",
		},
		"FreedTwice": {
			reason: "a repeated release ends no other Pod's", claims: 2,
			end: func(w *world, a *claims.Allocator) error { return errors.Join(free(w, a, "one"), free(w, a, "one")) }, entry: " ",
		},
		"PublishedAndFreed": {
			reason: "one end, not two", claims: 2,
			end: func(w *world, a *claims.Allocator) error {
				a.Published(w.key(), "one", no, no)
				return free(w, a, "one")
			}, entry: " ",
		},
		"ReleasedInFormerLife": {
			reason: "this life does not count it", claims: 1, uses: []claims.Use{{Owner: "one", Phase: claims.Releasing}},
			end: func(w *world, a *claims.Allocator) error { return free(w, a, "one") }, entry: " ",
		},
		"ClaimedInFormerLife": {
			reason: "this life counts it", uses: []claims.Use{{Owner: "one", Phase: claims.Claimed}},
			end: func(w *world, a *claims.Allocator) error { return free(w, a, "one") }, entry: "-",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("", ""), func(w *world) {
				for i := range tc.uses {
					tc.uses[i].Key = w.key()
				}
				a := w.node("n1", tc.uses...)
				if err := a.Settle(w.Context(), w.key()); err != nil {
					w.Fatal(err)
				}
				for range tc.claims {
					w.claim(a, none, none)
				}
				if err := tc.end(w, a); err != nil {
					w.Fatal(err)
				}
				w.idle()
				if got := w.entry("n1"); got != tc.entry {
					w.Errorf("%s: entry %q, want %q", tc.reason, got, tc.entry)
				}
			})
		})
	}
}
