// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
)

func TestQuarantine(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// after is what happens to 10.0.0.1, which n1 has in quarantine.
		after func(w *testbed.World, n1 *allocator.Allocator)
		// bits and entry of n1 are what is left.
		bits  []string
		entry string
	}{
		"Stays": {
			reason: "something else has it", entry: "10.0.0.1 ", bits: []string{"10.0.0.1"},
			after: func(*testbed.World, *allocator.Allocator) { time.Sleep(59 * time.Minute) },
		},
		"Ends": {
			reason: "the machine may be gone after an hour: the next claim asks again", entry: "-",
			after: func(*testbed.World, *allocator.Allocator) { time.Sleep(61 * time.Minute) },
		},
		"Release": {
			reason: "a release of a former Pod comes late", entry: "10.0.0.1 ", bits: []string{"10.0.0.1"},
			after: func(w *testbed.World, n1 *allocator.Allocator) {
				w.Release(n1, "n1", testbed.Addr("10.0.0.1"), testbed.NoAddr())
				n1.Discard(w.Net, testbed.Addr("10.0.0.1"), testbed.NoAddr())
			},
		},
		"Shutdown": {
			reason: "a daemon that ends leaves nothing behind that no DanmEp covers", entry: "-",
			after: func(w *testbed.World, n1 *allocator.Allocator) {
				if err := n1.ReleaseWarmPool(w.Context()); err != nil {
					w.Error(err)
				}
			},
		},
		"Restart": {
			reason: "nothing remembers it after a crash: the next claim asks again", entry: "-",
			after: func(w *testbed.World, n1 *allocator.Allocator) {
				n1.Close()
				if err := w.Node("n1").ReconcileEntries(w.Context(), w.Key()); err != nil {
					w.Error(err)
				}
			},
		},
		"ByName": {
			reason: "who asks by name asks the network again, too", entry: "10.0.0.1 ", bits: []string{"10.0.0.1"},
			after: func(w *testbed.World, n1 *allocator.Allocator) {
				w.Claim(n1, testbed.Static("10.0.0.1"), testbed.None())
				time.Sleep(2 * time.Hour) // the end of the quarantine is not the end of this claim
			},
		},
		"Subnet": {
			reason: "a netadmin who saw the conflict moves the network", entry: "10.9.0.0 ", bits: []string{"10.9.0.0"},
			after: func(w *testbed.World, n1 *allocator.Allocator) {
				w.Net = w.Store.Create(testbed.ClusterNetwork("10.9.0.0/31", ""))
				w.Claim(n1, testbed.Dynamic(), testbed.None())
			},
		},
		"Deletion": {
			reason: "it must not keep a network in deletion for an hour", entry: "-",
			after: func(w *testbed.World, n1 *allocator.Allocator) {
				w.Store.Delete(w.Net.Ref)
				n1.ObserveVersion(w.Key(), w.Store.Object(w.Net.Ref).ResourceVersion)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/29", ""), func(w *testbed.World) {
				n1 := w.Node("n1")
				w.Quarantine(n1)
				if got := w.IPAM().Held["n1"].QuarantinedV4; got != "10.0.0.1" {
					w.Errorf("marked in the entry: %q", got)
				}
				tc.after(w, n1)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if diff := cmp.Diff(tc.bits, w.Bits()); diff != "" || w.Entry("n1") != tc.entry {
					w.Errorf("%s: entry %q, want %q; bits: -want +got:\n%s", tc.reason, w.Entry("n1"), tc.entry, diff)
				}
			})
		})
	}
}

// A Pod that answers for every address must not use the pool up.
func TestQuarantineIsBounded(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/28", ""), func(w *testbed.World) { // 14 addresses: 3 of all nodes
		n1, n2 := w.Node("n1"), w.Node("n2")
		w.Quarantine(n1)
		w.Quarantine(n2)
		w.Quarantine(n1)
		for _, a := range []*allocator.Allocator{n1, n2} {
			a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
			if a.Quarantine(w.Net, a4) {
				w.Errorf("%v is a fourth of 14 addresses", a4)
			}
		}
		w.Idle()
		if got := len(w.Bits()); got != 3 {
			w.Errorf("%d addresses are in use, want 3: %v", got, w.Bits())
		}
		if a4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None()); n1.Quarantine(w.Net, a4) {
			w.Error("the bound is forgotten with the next claim")
		}
	})
}

func TestQuarantineIsBoundedBetweenWrites(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", ""), func(w *testbed.World) { // 2 addresses: 1 at least
		a := w.Node("n1")
		b4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		c4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		if !a.Quarantine(w.Net, b4) || a.Quarantine(w.Net, c4) {
			w.Error("want the first and not the second")
		}
		w.Idle()
		if diff := cmp.Diff([]string{b4.String()}, w.Bits()); diff != "" {
			w.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestQuarantineIsBoundedPerNode(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/16", ""), func(w *testbed.World) {
		n1 := w.Node("n1")
		for range 64 {
			w.Quarantine(n1)
		}
		if a4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None()); n1.Quarantine(w.Net, a4) {
			w.Errorf("%v is the 65th", a4)
		}
		if got := n1.Stats().Quarantined; got != 64 {
			w.Errorf("the metric says %d", got)
		}
		if a4, _ := w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None()); !w.Nodes[1].Quarantine(w.Net, a4) {
			w.Error("another node has a bound of its own")
		}
	})
}

// A node does not give back what it has in quarantine: to wait for it would cost each
// Pod of a full network 8 s.
func TestQuarantineOfAnotherNodeIsNotWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   allocator.AddressRequest
		err    error
		says   string
	}{
		"Exhausted": {"the pool is as full as it will be for an hour", testbed.Dynamic(), allocator.ErrExhausted, "delete Pods, or widen"},
		"Static":    {"the node that keeps it says why", testbed.Static("10.0.0.1"), allocator.ErrTaken, `by another machine, as node "n1" found`},
	} {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", ""), func(w *testbed.World) {
				w.Quarantine(w.Node("n1"))
				n2 := w.Node("n2")
				a4, _ := w.Claim(n2, testbed.Dynamic(), testbed.None())
				w.Publish(n2, "n2", a4, testbed.NoAddr())
				w.Idle()
				begin := time.Now()
				_, _, err := n2.Claim(w.Context(), w.Net, tc.want, testbed.None())
				if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
					w.Fatalf("%s: got %v, want %v with %q", tc.reason, err, tc.err, tc.says)
				}
				if took := time.Since(begin); took > time.Second || w.IPAM().ReclaimRequestTime != nil {
					w.Errorf("%s: took %v, pressure %v", tc.reason, took, w.IPAM().ReclaimRequestTime)
				}
			})
		})
	}
}

// Out of the warm pool, an address is put into quarantine without a claim's write.
func TestQuarantineOfAWarmAddress(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", "fd00::/120"), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{})
		w.Claim(a, testbed.Dynamic(), testbed.Dynamic())
		a4, a6 := w.Claim(a, testbed.Dynamic(), testbed.Dynamic())
		if !a.Quarantine(w.Net, a4) || !a.Quarantine(w.Net, a6) {
			w.Fatal("refused")
		}
		synctest.Wait()
		if h := w.IPAM().Held["n1"]; h.QuarantinedV4 != a4.String() || h.QuarantinedV6 != a6.String() {
			w.Errorf("marked: %q and %q, want %v and %v", h.QuarantinedV4, h.QuarantinedV6, a4, a6)
		}
		for range 32 {
			if b4, b6 := w.Claim(a, testbed.Dynamic(), testbed.Dynamic()); b4 == a4 || b6 == a6 {
				w.Errorf("got %v and %v again", b4, b6)
			}
		}
	})
}
