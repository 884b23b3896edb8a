// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

func TestLifeOfAnAddress(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *testbed.World) {
		a := w.Node("n1")
		a4, a6 := w.Claim(a, testbed.Dynamic(), testbed.Dynamic())
		steps := []struct {
			reason string
			do     func() error
			bits   []string
			entry  string
		}{
			{
				"a claim is covered by the entry until its DanmEp exists",
				func() error { w.Idle(); return nil },
				[]string{"10.0.0.1", "fd00::1"}, "10.0.0.1 fd00::1",
			},
			{
				"then by the DanmEp alone: the entry goes after a while",
				func() error { w.Publish(a, "n1", a4, a6); w.Idle(); return nil },
				[]string{"10.0.0.1", "fd00::1"}, "-",
			},
			{
				"back into the entry before the DanmEp goes",
				func() error { return a.ReturnToEntry(w.Context(), w.Key(), "", a4, a6) },
				[]string{"10.0.0.1", "fd00::1"}, "10.0.0.1 fd00::1",
			},
			{
				"a second return changes nothing",
				func() error { return a.ReturnToEntry(w.Context(), w.Key(), "", a4, a6) },
				[]string{"10.0.0.1", "fd00::1"}, "10.0.0.1 fd00::1",
			},
			{
				"bit and entry in one write",
				func() error {
					w.Store.RemoveEndpoint("ns", w.Endpoint("n1", a4, a6).Name)
					return a.Free(w.Context(), w.Key(), "", a4, a6)
				},
				nil, "-",
			},
			{
				"a second release changes nothing",
				func() error {
					return errors.Join(a.ReturnToEntry(w.Context(), w.Key(), "", a4, a6), a.Free(w.Context(), w.Key(), "", a4, a6))
				},
				nil, "-",
			},
		}
		for _, s := range steps {
			if err := s.do(); err != nil {
				w.Fatalf("%s: %v", s.reason, err)
			}
			if diff := cmp.Diff(s.bits, w.Bits()); diff != "" {
				w.Errorf("%s: bits, -want +got:\n%s", s.reason, diff)
			}
			if got := w.Entry("n1"); got != s.entry {
				w.Errorf("%s: entry %q, want %q", s.reason, got, s.entry)
			}
		}
		if n := ipamtest.Allocated(w.IPAM()); n != 0 {
			w.Errorf("allocated %d, want 0", n)
		}
	})
}

// The bug that hands out duplicates in DANM: a release that comes twice frees
// the address of whoever has it by now.
func TestSecondReleaseFreesNobodyElse(t *testing.T) {
	net := testbed.ClusterNetwork("10.0.0.0/31", "")
	testbed.RunTest(t, net, func(w *testbed.World) {
		n1, n2 := w.Node("n1"), w.Node("n2")
		a4, _ := w.Claim(n1, testbed.Static("10.0.0.0"), testbed.None())
		w.Publish(n1, "n1", a4, testbed.NoAddr())
		w.Release(n1, "n1", a4, testbed.NoAddr())
		w.Claim(n2, testbed.Static("10.0.0.0"), testbed.None())
		w.Publish(n2, "n2", a4, testbed.NoAddr())
		w.Idle()
		w.Release(n1, "n1", a4, testbed.NoAddr())
		n1.Discard(w.Net, a4, testbed.NoAddr())
		w.Idle()
		if diff := cmp.Diff([]string{"10.0.0.0"}, w.Bits()); diff != "" {
			w.Errorf("the other node's address: -want +got:\n%s", diff)
		}
	})
}

func TestReleaseOfAFormerNetworkIsANoop(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		n1 := w.Node("n1", allocator.Use{Key: w.Key(), V4: testbed.Addr("10.0.0.1"), Phase: allocator.Published})
		w.Store.Delete(w.Net.Ref)
		former := w.Key()
		w.Net = w.Store.Create(testbed.ClusterNetwork("10.0.0.0/24", ""))
		w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None())
		for _, key := range []network.Key{former, former, {Ref: w.Net.Ref, UID: "never was"}} {
			if err := n1.ReturnToEntry(w.Context(), key, "", testbed.Addr("10.0.0.1"), testbed.NoAddr()); err != nil {
				w.Error(err)
			}
			if err := n1.Free(w.Context(), key, "", testbed.Addr("10.0.0.1"), testbed.NoAddr()); err != nil {
				w.Error(err)
			}
		}
		w.Store.Delete(w.Net.Ref)
		n1.Discard(w.Net, testbed.Addr("10.0.0.1"), testbed.NoAddr())
		w.Idle()
		if diff := cmp.Diff([]string{"10.0.0.1"}, w.Bits()); diff != "" {
			w.Errorf("the new network's address: -want +got:\n%s", diff)
		}
	})
}

func TestDiscardServesTheNextClaimOfAFullPool(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", ""), func(w *testbed.World) {
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Claim(a, testbed.Dynamic(), testbed.None())
		a.Discard(w.Net, a4, testbed.NoAddr())
		if got, _ := w.Claim(a, testbed.Dynamic(), testbed.None()); got != a4 {
			w.Errorf("got %v, want %v: it was given back before", got, a4)
		}
	})
}

// An attachment whose DanmEp could never be made is freed without one.
func TestFreeWithoutReturn(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		if err := a.Free(w.Context(), w.Key(), "", a4, testbed.NoAddr()); err != nil {
			w.Fatal(err)
		}
		if w.Bits() != nil || w.Entry("n1") != "-" {
			w.Errorf("left: %v, entry %q", w.Bits(), w.Entry("n1"))
		}
	})
}

func TestReleasesWorkWhileTheNetworkIsDeleted(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		n1, n2 := w.Node("n1"), w.Node("n2")
		a1, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
		a2, _ := w.Claim(n2, testbed.Dynamic(), testbed.None())
		w.Publish(n1, "n1", a1, testbed.NoAddr())
		w.Publish(n2, "n2", a2, testbed.NoAddr())
		w.Idle()
		w.Store.Delete(w.Net.Ref)
		w.Release(n1, "n1", a1, testbed.NoAddr())
		w.Idle()
		if err := w.RemoveFinalizer(w.Store); err != nil || w.Store.Object(w.Net.Ref) == nil {
			w.Fatalf("the finalizer went while a DanmEp was left (%v)", err)
		}
		w.Release(n2, "n2", a2, testbed.NoAddr())
		w.Idle()
		if o := w.Store.Object(w.Net.Ref); o == nil {
			w.Fatal("a node took the finalizer off: it cannot see what other nodes do")
		}
		if err := w.RemoveFinalizer(w.Store); err != nil || w.Store.Object(w.Net.Ref) != nil {
			w.Errorf("the last release left the network there (%v)", err)
		}
	})
}

// Published addresses go along with the next write: no write of their own.
func TestPublishedLeaveWithTheNextWrite(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		before := w.Store.Writes()
		time.Sleep(time.Second)
		w.Claim(a, testbed.Dynamic(), testbed.None())
		if got := w.Store.Writes() - before; got != 1 || w.Entry("n1") != "10.0.0.2 " {
			w.Errorf("%d writes, entry %q; want 1, and the second address", got, w.Entry("n1"))
		}
		before = w.Store.Writes()
		w.Idle()
		if got := w.Store.Writes() - before; got != 0 {
			w.Errorf("%d writes while nothing happened", got)
		}
	})
}

// The entry of a network without addresses is what keeps the network from being
// deleted under a Pod: it must go with the last Pod, however that one ends.
func TestEntryWithoutAddressesGoes(t *testing.T) {
	t.Parallel()
	free := func(w *testbed.World, a *allocator.Allocator, owner string) error {
		return a.Free(w.Context(), w.Key(), owner, testbed.NoAddr(), testbed.NoAddr())
	}
	cases := map[string]struct {
		reason string
		uses   []allocator.Use
		claims int
		end    func(*testbed.World, *allocator.Allocator) error
		entry  string
	}{
		"DELBeforeDanmEp": {
			reason: "its DanmEp is never made", claims: 1,
			end: func(w *testbed.World, a *allocator.Allocator) error { return free(w, a, "one") }, entry: "-",
		},
		"FreedTwice": {
			reason: "a repeated release ends no other Pod's", claims: 2,
			end: func(w *testbed.World, a *allocator.Allocator) error {
				return errors.Join(free(w, a, "one"), free(w, a, "one"))
			}, entry: " ",
		},
		"PublishedAndFreed": {
			reason: "one end, not two", claims: 2,
			end: func(w *testbed.World, a *allocator.Allocator) error {
				a.MarkPublished(w.Key(), "one", testbed.NoAddr(), testbed.NoAddr())
				return free(w, a, "one")
			}, entry: " ",
		},
		"ReleasedInFormerLife": {
			reason: "this life does not count it", claims: 1, uses: []allocator.Use{{Owner: "one", Phase: allocator.Releasing}},
			end: func(w *testbed.World, a *allocator.Allocator) error { return free(w, a, "one") }, entry: " ",
		},
		"ClaimedInFormerLife": {
			reason: "this life counts it", uses: []allocator.Use{{Owner: "one", Phase: allocator.Claimed}},
			end: func(w *testbed.World, a *allocator.Allocator) error { return free(w, a, "one") }, entry: "-",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("", ""), func(w *testbed.World) {
				for i := range tc.uses {
					tc.uses[i].Key = w.Key()
				}
				a := w.Node("n1", tc.uses...)
				if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
					w.Fatal(err)
				}
				for range tc.claims {
					w.Claim(a, testbed.None(), testbed.None())
				}
				if err := tc.end(w, a); err != nil {
					w.Fatal(err)
				}
				w.Idle()
				if got := w.Entry("n1"); got != tc.entry {
					w.Errorf("%s: entry %q, want %q", tc.reason, got, tc.entry)
				}
			})
		})
	}
}

// An allocator forgets a network that is gone: nothing is asked about it any
// more, and the next network of the name starts anew.
func TestNetworkGoesUnderAnAttachment(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(store, "n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		a.MarkPublished(w.Key(), "ep", a4, testbed.NoAddr())
		o := w.Store.Object(w.Net.Ref)
		if _, err := w.Store.Protect(w.Context(), o, false); err != nil {
			w.Fatal(err)
		}
		w.Store.Delete(w.Net.Ref) // by force: somebody took the finalizer off
		w.Idle()
		asked := len(s.Called())
		time.Sleep(time.Hour)
		if got := len(s.Called()); got != asked {
			w.Errorf("%d requests about a network that is gone: %v", got-asked, s.Called()[asked:])
		}
		w.Net = w.Store.Create(testbed.ClusterNetwork("10.0.0.0/24", ""))
		if b4, _ := w.Claim(a, testbed.Dynamic(), testbed.None()); b4 != a4 {
			w.Errorf("got %v of the new network, want its first", b4)
		}
	})
}

// Who gives up on a release may ask again: it goes on meanwhile.
func TestReleaseGivenUp(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(store, "n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		s.Set(ipamtest.OpUpdate, testbed.Faults(1, ipamtest.Fine, time.Second))
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		if err := a.ReturnToEntry(ctx, w.Key(), "ep", a4, testbed.NoAddr()); !errors.Is(err, status.ErrTryAgain) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v, want to be told to try again, and why", err)
		}
		w.Idle()
		if got := w.Entry("n1"); got != "10.0.0.1 " {
			w.Errorf("entry %q", got)
		}
		if err := a.ReturnToEntry(w.Context(), w.Key(), "ep", a4, testbed.NoAddr()); err != nil {
			w.Error(err)
		}
	})
}
