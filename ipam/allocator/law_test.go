// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
)

// A write that is still on its way is made to fail, even when by now there is
// nothing to write: its caller gave up.
func TestLateClaimOfNobodyIsFenced(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None()) // else there is a first bitmap to write
		store, _ := w.Scripted(ipamtest.Fault{Kind: ipamtest.Late, Delay: time.Hour})
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Millisecond)
		defer cancel()
		if _, _, err := w.NodeOver(store, "n1").Claim(ctx, w.Net, testbed.Dynamic(), testbed.None()); err == nil {
			w.Fatal("the claim was served: nothing is tested")
		}
		store.Wait()
		w.Idle()
		if len(w.Bits()) != 1 || w.Entry("n1") != "-" {
			w.Errorf("left: %v, entry %q", w.Bits(), w.Entry("n1"))
		}
	})
}

// The same when a late write would take the cover away that a later one found.
func TestLateFlushDoesNotUncover(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(store, "n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		s.Set(ipamtest.OpUpdate, testbed.Faults(1, ipamtest.Late, time.Hour))
		w.Publish(a, "n1", a4, testbed.NoAddr())
		time.Sleep(2*time.Second + time.Millisecond) // the idle flush is on its way, and late
		if err := a.ReturnToEntry(w.Context(), w.Key(), "", a4, testbed.NoAddr()); err != nil {
			w.Fatal(err)
		}
		w.Store.RemoveEndpoint("ns", w.Endpoint("n1", a4, testbed.NoAddr()).Name)
		store.Wait()
		if got := w.Entry("n1"); got != "10.0.0.1 " {
			w.Errorf("entry %q: the late write took the cover away", got)
		}
	})
}

// A release that the journal repeats frees nobody else's address on this node.
func TestOnlyTheOwnerReleases(t *testing.T) {
	t.Parallel()
	x := testbed.Addr("10.0.0.1")
	cases := map[string]struct {
		reason string
		uses   []allocator.Use
	}{
		"BehindItsTime": {
			"the journal has both: freed by one, claimed by the other",
			[]allocator.Use{{Owner: "former", V4: x, Phase: allocator.Releasing}, {Owner: "present", V4: x, Phase: allocator.Claimed}},
		},
		"TheOtherWayRound": {
			"in any order",
			[]allocator.Use{{Owner: "present", V4: x, Phase: allocator.Claimed}, {Owner: "former", V4: x, Phase: allocator.Releasing}},
		},
		"Unheard": {
			"the journal has never heard of it",
			[]allocator.Use{{Owner: "present", V4: x, Phase: allocator.Claimed}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				w.Claim(w.Node("n1"), testbed.Dynamic(), testbed.None())
				w.Nodes[0].Close()
				for i := range tc.uses {
					tc.uses[i].Key = w.Key()
				}
				a := w.Node("n1", tc.uses...)
				free := func(owner string) {
					for range 2 {
						if err := a.ReturnToEntry(w.Context(), w.Key(), owner, x, testbed.NoAddr()); err != nil {
							w.Fatal(err)
						}
						if err := a.Free(w.Context(), w.Key(), owner, x, testbed.NoAddr()); err != nil {
							w.Fatal(err)
						}
					}
				}
				free("former")
				if got := w.Entry("n1"); got != "10.0.0.1 " {
					w.Errorf("%s: entry %q", tc.reason, got)
				}
				free("present")
				if w.Bits() != nil {
					w.Errorf("%s: the owner's release left %v", tc.reason, w.Bits())
				}
			})
		})
	}
}

// A repeated release of a freed address that is claimed again on the same node.
func TestReleaseRepeatedAfterTheNextClaim(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/32", ""), func(w *testbed.World) {
		a := w.Node("n1")
		x, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		release := func() {
			if err := a.ReturnToEntry(w.Context(), w.Key(), "first", x, testbed.NoAddr()); err != nil {
				w.Fatal(err)
			}
			if err := a.Free(w.Context(), w.Key(), "first", x, testbed.NoAddr()); err != nil {
				w.Fatal(err)
			}
		}
		release()
		w.Claim(a, testbed.Dynamic(), testbed.None())
		release()
		if got := w.Entry("n1"); got != "10.0.0.0 " {
			w.Errorf("entry %q: the second Pod's address was freed", got)
		}
		a.Forget(w.Key(), "first", x, testbed.NoAddr())
		if err := a.Free(w.Context(), w.Key(), "second", x, testbed.NoAddr()); err != nil || w.Bits() != nil {
			w.Errorf("the second Pod's release: %v, left %v", err, w.Bits())
		}
	})
}

// What is in use here is no garbage, even if somebody took its DanmEp away.
func TestCollectSparesWhatIsInUseHere(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		w.Store.RemoveEndpoint("ns", w.Endpoint("n1", a4, testbed.NoAddr()).Name)
		if freed, err := a.CollectGarbage(w.Context(), w.Key()); freed != 0 || err != nil {
			w.Errorf("Collect() = %d, %v", freed, err)
		}
		if len(w.Bits()) != 1 {
			w.Errorf("bits %v", w.Bits())
		}
	})
}

// A status that lost what is in use here gets it back with the next write.
func TestLostCoverIsPutBack(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24"}})
		if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		if len(w.Bits()) != 1 || w.Entry("n1") != "10.0.0.1 " {
			w.Errorf("bits %v, entry %q", w.Bits(), w.Entry("n1"))
		}
	})
}

// What came back is put into the entry only if it is this node's for sure.
func TestReturnOfWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		bits    map[string]string
		other   string
		reports int
	}{
		"FreeAlready":     {"a rebuilt bitmap does not have it", nil, "", 0},
		"AnothersEntry":   {"an older state gave it to another node", testbed.Page(1), "10.0.0.1", 1},
		"UnreadableEntry": {"an entry that nobody can read may have it", testbed.Page(1), "?", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				w.Damaged = true
				a := w.Node("n1")
				a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
				w.Publish(a, "n1", a4, testbed.NoAddr())
				w.Idle()
				ipam := &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: tc.bits}}
				if tc.other != "" {
					ipam.Held = map[string]v1.HeldAddresses{"n2": {V4: tc.other}}
				}
				w.Store.SetIPAM(w.Net.Ref, ipam)
				w.Release(a, "n1", a4, testbed.NoAddr())
				if len(w.Bits()) != len(tc.bits) || w.Entry("n1") != "-" || len(w.Reports) != tc.reports {
					w.Errorf("%s: bits %v, entry %q, reports %v", tc.reason, w.Bits(), w.Entry("n1"), w.Reports)
				}
				if diff := cmp.Diff(ipam.Held, w.IPAM().Held); diff != "" {
					w.Errorf("%s: entries of others, -want +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}
