// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// A write that is still on its way is made to fail, even when by now there is
// nothing to write: its caller gave up.
func TestLateClaimOfNobodyIsFenced(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.claim(w.node("n2"), dynamic, none) // else there is a first bitmap to write
		store, _ := w.scripted(ipamtest.Fault{Kind: ipamtest.Late, Delay: time.Hour})
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Millisecond)
		defer cancel()
		if _, _, err := w.nodeOver(store, "n1").Claim(ctx, w.net, dynamic, none); err == nil {
			w.Fatal("the claim was served: nothing is tested")
		}
		store.Wait()
		w.idle()
		if len(w.bits()) != 1 || w.entry("n1") != "-" {
			w.Errorf("left: %v, entry %q", w.bits(), w.entry("n1"))
		}
	})
}

// The same when a late write would take the cover away that a later one found.
func TestLateFlushDoesNotUncover(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(store, "n1")
		a4, _ := w.claim(a, dynamic, none)
		s.set(ipamtest.OpUpdate, faults(1, ipamtest.Late, time.Hour))
		w.publish(a, "n1", a4, no)
		time.Sleep(2*time.Second + time.Millisecond) // the idle flush is on its way, and late
		if err := a.Return(w.Context(), w.key(), "", a4, no); err != nil {
			w.Fatal(err)
		}
		w.store.RemoveEndpoint("ns", w.endpoint("n1", a4, no).Name)
		store.Wait()
		if got := w.entry("n1"); got != "10.0.0.1 " {
			w.Errorf("entry %q: the late write took the cover away", got)
		}
	})
}

// A release that the journal repeats frees nobody else's address on this node.
func TestOnlyTheOwnerReleases(t *testing.T) {
	t.Parallel()
	x := addr("10.0.0.1")
	cases := map[string]struct {
		reason string
		uses   []claims.Use
	}{
		"BehindItsTime": {
			"the journal has both: freed by one, claimed by the other",
			[]claims.Use{{Owner: "former", V4: x, Phase: claims.Releasing}, {Owner: "present", V4: x, Phase: claims.Claimed}},
		},
		"TheOtherWayRound": {
			"in any order",
			[]claims.Use{{Owner: "present", V4: x, Phase: claims.Claimed}, {Owner: "former", V4: x, Phase: claims.Releasing}},
		},
		"Unheard": {
			"the journal has never heard of it",
			[]claims.Use{{Owner: "present", V4: x, Phase: claims.Claimed}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				w.claim(w.node("n1"), dynamic, none)
				w.nodes[0].Close()
				for i := range tc.uses {
					tc.uses[i].Key = w.key()
				}
				a := w.node("n1", tc.uses...)
				free := func(owner string) {
					for range 2 {
						if err := a.Return(w.Context(), w.key(), owner, x, no); err != nil {
							w.Fatal(err)
						}
						if err := a.Free(w.Context(), w.key(), owner, x, no); err != nil {
							w.Fatal(err)
						}
					}
				}
				free("former")
				if got := w.entry("n1"); got != "10.0.0.1 " {
					w.Errorf("%s: entry %q", tc.reason, got)
				}
				free("present")
				if w.bits() != nil {
					w.Errorf("%s: the owner's release left %v", tc.reason, w.bits())
				}
			})
		})
	}
}

// A repeated release of a freed address that is claimed again on the same node.
func TestReleaseRepeatedAfterTheNextClaim(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/32", ""), func(w *world) {
		a := w.node("n1")
		x, _ := w.claim(a, dynamic, none)
		release := func() {
			if err := a.Return(w.Context(), w.key(), "first", x, no); err != nil {
				w.Fatal(err)
			}
			if err := a.Free(w.Context(), w.key(), "first", x, no); err != nil {
				w.Fatal(err)
			}
		}
		release()
		w.claim(a, dynamic, none)
		release()
		if got := w.entry("n1"); got != "10.0.0.0 " {
			w.Errorf("entry %q: the second Pod's address was freed", got)
		}
		a.Forget(w.key(), "first", x, no)
		if err := a.Free(w.Context(), w.key(), "second", x, no); err != nil || w.bits() != nil {
			w.Errorf("the second Pod's release: %v, left %v", err, w.bits())
		}
	})
}

// What is in use here is no garbage, even if somebody took its DanmEp away.
func TestCollectSparesWhatIsInUseHere(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		w.idle()
		w.store.RemoveEndpoint("ns", w.endpoint("n1", a4, no).Name)
		if freed, err := a.Collect(w.Context(), w.key()); freed != 0 || err != nil {
			w.Errorf("Collect() = %d, %v", freed, err)
		}
		if len(w.bits()) != 1 {
			w.Errorf("bits %v", w.bits())
		}
	})
}

// A status that lost what is in use here gets it back with the next write.
func TestLostCoverIsPutBack(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		w.claim(a, dynamic, none)
		w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24"}})
		if err := a.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		if len(w.bits()) != 1 || w.entry("n1") != "10.0.0.1 " {
			w.Errorf("bits %v, entry %q", w.bits(), w.entry("n1"))
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
		"AnothersEntry":   {"an older state gave it to another node", page(1), "10.0.0.1", 1},
		"UnreadableEntry": {"an entry that nobody can read may have it", page(1), "?", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				w.damaged = true
				a := w.node("n1")
				a4, _ := w.claim(a, dynamic, none)
				w.publish(a, "n1", a4, no)
				w.idle()
				ipam := &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: tc.bits}}
				if tc.other != "" {
					ipam.Held = map[string]v1.HeldAddresses{"n2": {V4: tc.other}}
				}
				w.store.SetIPAM(w.net.Ref, ipam)
				w.release(a, "n1", a4, no)
				if len(w.bits()) != len(tc.bits) || w.entry("n1") != "-" || len(w.reports) != tc.reports {
					w.Errorf("%s: bits %v, entry %q, reports %v", tc.reason, w.bits(), w.entry("n1"), w.reports)
				}
				if diff := cmp.Diff(ipam.Held, w.ipam().Held); diff != "" {
					w.Errorf("%s: entries of others, -want +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}
