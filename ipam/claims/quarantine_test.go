// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// quarantine claims an address and finds it in use by something else.
func (w *world) quarantine(a *claims.Allocator) netip.Addr {
	w.Helper()
	a4, _ := w.claim(a, dynamic, none)
	if !a.Quarantine(w.net, a4) {
		w.Fatalf("%v is refused", a4)
	}
	synctest.Wait()
	return a4
}

func TestQuarantine(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// after is what happens to 10.0.0.1, which n1 has in quarantine.
		after func(w *world, n1 *claims.Allocator)
		// bits and entry of n1 are what is left.
		bits  []string
		entry string
	}{
		"Stays": {
			reason: "something else has it", entry: "10.0.0.1 ", bits: []string{"10.0.0.1"},
			after: func(*world, *claims.Allocator) { time.Sleep(59 * time.Minute) },
		},
		"Ends": {
			reason: "the machine may be gone after an hour: the next claim asks again", entry: "-",
			after: func(*world, *claims.Allocator) { time.Sleep(61 * time.Minute) },
		},
		"Release": {
			reason: "a release of a former Pod comes late", entry: "10.0.0.1 ", bits: []string{"10.0.0.1"},
			after: func(w *world, n1 *claims.Allocator) {
				w.release(n1, "n1", addr("10.0.0.1"), no)
				n1.Discard(w.net, addr("10.0.0.1"), no)
			},
		},
		"Shutdown": {
			reason: "a daemon that ends leaves nothing behind that no DanmEp covers", entry: "-",
			after: func(w *world, n1 *claims.Allocator) {
				if err := n1.GiveBack(w.Context()); err != nil {
					w.Error(err)
				}
			},
		},
		"Restart": {
			reason: "nothing remembers it after a crash: the next claim asks again", entry: "-",
			after: func(w *world, n1 *claims.Allocator) {
				n1.Close()
				if err := w.node("n1").Settle(w.Context(), w.key()); err != nil {
					w.Error(err)
				}
			},
		},
		"ByName": {
			reason: "who asks by name asks the network again, too", entry: "10.0.0.1 ", bits: []string{"10.0.0.1"},
			after: func(w *world, n1 *claims.Allocator) {
				w.claim(n1, static("10.0.0.1"), none)
				time.Sleep(2 * time.Hour) // the end of the quarantine is not the end of this claim
			},
		},
		"Subnet": {
			reason: "a netadmin who saw the conflict moves the network", entry: "10.9.0.0 ", bits: []string{"10.9.0.0"},
			after: func(w *world, n1 *claims.Allocator) {
				w.net = w.store.Create(clusterNetwork("10.9.0.0/31", ""))
				w.claim(n1, dynamic, none)
			},
		},
		"Deletion": {
			reason: "it must not keep a network in deletion for an hour", entry: "-",
			after: func(w *world, n1 *claims.Allocator) {
				w.store.Delete(w.net.Ref)
				n1.Look(w.key(), w.store.Object(w.net.Ref).ResourceVersion)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/29", ""), func(w *world) {
				n1 := w.node("n1")
				w.quarantine(n1)
				if got := w.ipam().Held["n1"].QuarantinedV4; got != "10.0.0.1" {
					w.Errorf("marked in the entry: %q", got)
				}
				tc.after(w, n1)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if diff := cmp.Diff(tc.bits, w.bits()); diff != "" || w.entry("n1") != tc.entry {
					w.Errorf("%s: entry %q, want %q; bits: -want +got:\n%s", tc.reason, w.entry("n1"), tc.entry, diff)
				}
			})
		})
	}
}

// A Pod that answers for every address must not use the pool up.
func TestQuarantineIsBounded(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/28", ""), func(w *world) { // 14 addresses: 3 of all nodes
		n1, n2 := w.node("n1"), w.node("n2")
		w.quarantine(n1)
		w.quarantine(n2)
		w.quarantine(n1)
		for _, a := range []*claims.Allocator{n1, n2} {
			a4, _ := w.claim(a, dynamic, none)
			if a.Quarantine(w.net, a4) {
				w.Errorf("%v is a fourth of 14 addresses", a4)
			}
		}
		w.idle()
		if got := len(w.bits()); got != 3 {
			w.Errorf("%d addresses are in use, want 3: %v", got, w.bits())
		}
		if a4, _ := w.claim(n1, dynamic, none); n1.Quarantine(w.net, a4) {
			w.Error("the bound is forgotten with the next claim")
		}
	})
}

func TestQuarantineIsBoundedBetweenWrites(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/30", ""), func(w *world) { // 2 addresses: 1 at least
		a := w.node("n1")
		b4, _ := w.claim(a, dynamic, none)
		c4, _ := w.claim(a, dynamic, none)
		if !a.Quarantine(w.net, b4) || a.Quarantine(w.net, c4) {
			w.Error("want the first and not the second")
		}
		w.idle()
		if diff := cmp.Diff([]string{b4.String()}, w.bits()); diff != "" {
			w.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestQuarantineIsBoundedPerNode(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/16", ""), func(w *world) {
		n1 := w.node("n1")
		for range 64 {
			w.quarantine(n1)
		}
		if a4, _ := w.claim(n1, dynamic, none); n1.Quarantine(w.net, a4) {
			w.Errorf("%v is the 65th", a4)
		}
		if got := n1.Stats().Quarantined; got != 64 {
			w.Errorf("the metric says %d", got)
		}
		if a4, _ := w.claim(w.node("n2"), dynamic, none); !w.nodes[1].Quarantine(w.net, a4) {
			w.Error("another node has a bound of its own")
		}
	})
}

// A node does not give back what it has in quarantine: to wait for it would cost each
// Pod of a full network 8 s.
func TestQuarantineOfAnotherNodeIsNotWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   claims.Want
		err    error
		says   string
	}{
		"Exhausted": {"the pool is as full as it will be for an hour", dynamic, claims.ErrExhausted, "delete Pods or enlarge"},
		"Static":    {"the node that keeps it says why", static("10.0.0.1"), claims.ErrTaken, `by another machine, as node "n1" found`},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/30", ""), func(w *world) {
				w.quarantine(w.node("n1"))
				n2 := w.node("n2")
				a4, _ := w.claim(n2, dynamic, none)
				w.publish(n2, "n2", a4, no)
				w.idle()
				begin := time.Now()
				_, _, err := n2.Claim(w.Context(), w.net, tc.want, none)
				if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
					w.Fatalf("%s: got %v, want %v with %q", tc.reason, err, tc.err, tc.says)
				}
				if took := time.Since(begin); took > time.Second || w.ipam().ReclaimRequestTime != nil {
					w.Errorf("%s: took %v, pressure %v", tc.reason, took, w.ipam().ReclaimRequestTime)
				}
			})
		})
	}
}

// Out of the warm pool, an address is put into quarantine without a claim's write.
func TestQuarantineOfAWarmAddress(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", "fd00::/120"), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{})
		w.claim(a, dynamic, dynamic)
		a4, a6 := w.claim(a, dynamic, dynamic)
		if !a.Quarantine(w.net, a4) || !a.Quarantine(w.net, a6) {
			w.Fatal("refused")
		}
		synctest.Wait()
		if h := w.ipam().Held["n1"]; h.QuarantinedV4 != a4.String() || h.QuarantinedV6 != a6.String() {
			w.Errorf("marked: %q and %q, want %v and %v", h.QuarantinedV4, h.QuarantinedV6, a4, a6)
		}
		for range 32 {
			if b4, b6 := w.claim(a, dynamic, dynamic); b4 == a4 || b6 == a6 {
				w.Errorf("got %v and %v again", b4, b6)
			}
		}
	})
}
