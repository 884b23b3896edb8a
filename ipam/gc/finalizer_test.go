// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Whatever becomes of the requests that end a deletion, the network goes in the end, and
// not before.
func TestDeletionThroughFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		op     ipamtest.Op
		faults []ipamtest.Fault
	}{
		"Conflict":    {"somebody else wrote", ipamtest.OpProtect, testbed.Faults(3, ipamtest.Conflict, 0)},
		"LostRequest": {"asked again", ipamtest.OpProtect, testbed.Faults(3, ipamtest.LostRequest, 0)},
		"LostReply":   {"the network is gone, and that is seen", ipamtest.OpProtect, testbed.Faults(1, ipamtest.LostReply, 0)},
		"NoRead":      {"asked again", ipamtest.OpGet, testbed.Faults(3, ipamtest.LostRequest, 0)},
		"NoList":      {"not without knowing what DanmEps there are", ipamtest.OpEndpoints, testbed.Faults(3, ipamtest.LostRequest, 0)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				a := w.Node("n1")
				a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
				w.Store.Delete(w.Net.Ref)
				w.Idle()
				a.Discard(w.Net, a4, testbed.NoAddr())
				w.Idle()
				store, s := w.Scripted()
				s.Set(tc.op, tc.faults)
				for range tc.faults {
					if err := w.RemoveFinalizer(store); err == nil {
						w.Errorf("%s: no error, so nobody tries again", tc.reason)
					}
				}
				if err := w.RemoveFinalizer(store); err != nil || w.Store.Object(w.Net.Ref) != nil {
					w.Errorf("%s: still there (%v)", tc.reason, err)
				}
			})
		})
	}
}

// A network in deletion stays while anybody uses it, or begins to.
func TestDeletionWaitsForUsers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		use    func(*testbed.World, *allocator.Allocator)
	}{
		"Entry": {"an address that a node covers is in use, or about to be", func(w *testbed.World, a *allocator.Allocator) {
			w.Claim(a, testbed.Dynamic(), testbed.None())
		}},
		"EntryWithoutAddress": {"an attachment without an address, whose DanmEp may not exist yet", func(w *testbed.World, a *allocator.Allocator) {
			w.Claim(a, testbed.None(), testbed.None())
		}},
		"DanmEp": {"an address that no entry covers any more", func(w *testbed.World, a *allocator.Allocator) {
			a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
			w.Publish(a, "n1", a4, testbed.NoAddr())
			w.Idle()
			if got := w.Entry("n1"); got != "-" {
				w.Fatalf("entry %q, want none", got)
			}
		}},
		"DanmEpOfNobody": {"DANM wrote it: it counts for any network of the name", func(w *testbed.World, a *allocator.Allocator) {
			a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
			a.Discard(w.Net, a4, testbed.NoAddr())
			w.Store.AddEndpoint(w.Net.Ref, status.Endpoint{Namespace: "ns", Name: "danm", Node: "n9"})
			w.Idle()
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				tc.use(w, w.Node("n1"))
				w.Store.Delete(w.Net.Ref)
				if err := w.RemoveFinalizer(w.Store); err != nil {
					w.Error(err)
				}
				w.Idle()
				if w.Store.Object(w.Net.Ref) == nil {
					w.Errorf("the network is gone: %s", tc.reason)
				}
			})
		})
	}
}

// Who begins to use the network after it was read has changed it: the finalizer stays.
func TestDeletionMeetsAClaim(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		w.Store.Delete(w.Net.Ref)
		ep := w.Endpoint("n1", a4, testbed.NoAddr())
		store := &ipamtest.Faulty{Store: w.Store, Next: func(op ipamtest.Op) ipamtest.Fault {
			if op != ipamtest.OpEndpoints {
				return ipamtest.Fault{}
			}
			// After the read: the DanmEp is lost, and its node covers the address again.
			w.Store.RemoveEndpoint(ep.Namespace, ep.Name)
			a.DanmEpMissing(w.Key(), ep.Name, a4, testbed.NoAddr())
			time.Sleep(time.Second)
			return ipamtest.Fault{}
		}}
		w.Damaged = true // for a moment nobody covers it
		if err := w.RemoveFinalizer(store); !errors.Is(err, status.ErrConflict) {
			w.Errorf("EndDeletion: got %v, want a conflict", err)
		}
		if w.Store.Object(w.Net.Ref) == nil {
			w.Error("the network is gone under an address in use")
		}
	})
}

// An object that is older than it was may have lost its users: it recovers first.
func TestDeletionOfAnOlderObject(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		a.Discard(w.Net, a4, testbed.NoAddr())
		w.Idle()
		w.Store.Delete(w.Net.Ref)
		collector := gc.NewCollector(w.Store, gc.Config{})
		collector.ObserveVersion(w.Key(), "1000")
		if done, err := collector.RemoveFinalizer(w.Context(), w.Key()); done || !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("EndDeletion() = %t, %v; want it to be tried again", done, err)
		}
		if o := w.Store.Object(w.Net.Ref); o == nil || o.IPAM.Recovering == nil {
			w.Errorf("got %+v, want it to recover", o)
		}
		if err := w.RemoveFinalizer(w.Store); err != nil || w.Store.Object(w.Net.Ref) == nil {
			w.Errorf("it is gone before every node has reported (%v)", err)
		}
		if _, err := collector.Recover(w.Context(), w.Key(), nil, nil); err != nil {
			w.Fatal(err)
		}
		if err := w.RemoveFinalizer(w.Store); err != nil || w.Store.Object(w.Net.Ref) != nil {
			w.Errorf("it is there after that (%v)", err)
		}
	})
}

// A network that only DanmEps of another program name stays until they are gone. Its first claim gets
// none of their addresses, and waits for no node: DANM's nodes never report.
func TestFinalizerForOtherDanmEps(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true // there is no bitmap before the first claim
		w.Store.AddEndpoint(w.Net.Ref, status.Endpoint{Namespace: "ns", Name: "danm", Node: "n9", V4: testbed.Addr("10.0.0.1")})
		collector := gc.NewCollector(w.Store, gc.Config{})
		for range 2 { // safe to repeat
			if err := collector.AddFinalizer(w.Context(), w.Key()); err != nil {
				w.Fatal(err)
			}
		}
		if o := w.Store.Object(w.Net.Ref); !o.Protected {
			w.Error("the network has no finalizer")
		}
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		if a4 != testbed.Addr("10.0.0.2") {
			w.Errorf("got %v, want the first address that DANM has not given to a Pod", a4)
		}
		a.Discard(w.Net, a4, testbed.NoAddr())
		w.Idle()
		w.Store.Delete(w.Net.Ref)
		if err := w.RemoveFinalizer(w.Store); err != nil || w.Store.Object(w.Net.Ref) == nil {
			w.Errorf("the network is gone before its DanmEp (%v)", err)
		}
		if err := collector.AddFinalizer(w.Context(), w.Key()); err != nil {
			w.Errorf("a network in deletion gets no finalizer, and no error: %v", err)
		}
	})
}

// Whatever becomes of the requests that add the finalizer, a network that has it has status.ipam.
func TestFinalizerThroughFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		op     ipamtest.Op
		fault  ipamtest.Kind
	}{
		"NoRead":          {"nothing is known of the network", ipamtest.OpGet, ipamtest.LostRequest},
		"StatusConflict":  {"a node uses it now", ipamtest.OpUpdate, ipamtest.Conflict},
		"StatusLostReply": {"the status is there, the finalizer is not", ipamtest.OpUpdate, ipamtest.LostReply},
		"Conflict":        {"somebody else wrote", ipamtest.OpProtect, ipamtest.Conflict},
		"LostReply":       {"the finalizer is there", ipamtest.OpProtect, ipamtest.LostReply},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				failed := false
				store := &ipamtest.Faulty{Store: w.Store, Next: func(op ipamtest.Op) ipamtest.Fault {
					if op != tc.op || failed {
						return ipamtest.Fault{}
					}
					failed = true
					return ipamtest.Fault{Kind: tc.fault}
				}}
				collector := gc.NewCollector(store, gc.Config{})
				if err := collector.AddFinalizer(w.Context(), w.Key()); err == nil {
					w.Errorf("%s: no error, so nobody tries again", tc.reason)
				}
				if err := collector.AddFinalizer(w.Context(), w.Key()); err != nil {
					w.Errorf("%s: second attempt: %v", tc.reason, err)
				}
				if o := w.Store.Object(w.Net.Ref); !o.Protected || o.IPAM == nil {
					w.Errorf("%s: protected %v, status.ipam %v, want both", tc.reason, o.Protected, o.IPAM)
				}
			})
		})
	}
}

// A write to an object that is older than it was would hide that from the nodes.
func TestNoFinalizerForAnOlderObject(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		before := w.Store.Object(w.Net.Ref)
		collector := gc.NewCollector(w.Store, gc.Config{})
		collector.ObserveVersion(w.Key(), "1000")
		if err := collector.AddFinalizer(w.Context(), w.Key()); err != nil {
			w.Error(err)
		}
		if o := w.Store.Object(w.Net.Ref); o.Protected || o.ResourceVersion != before.ResourceVersion {
			w.Errorf("protected %v, version %s, want the object as it was", o.Protected, o.ResourceVersion)
		}
	})
}
