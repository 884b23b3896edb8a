// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
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
		"Conflict":    {"somebody else wrote", ipamtest.OpProtect, faults(3, ipamtest.Conflict, 0)},
		"LostRequest": {"asked again", ipamtest.OpProtect, faults(3, ipamtest.LostRequest, 0)},
		"LostReply":   {"the network is gone, and that is seen", ipamtest.OpProtect, faults(1, ipamtest.LostReply, 0)},
		"NoRead":      {"asked again", ipamtest.OpGet, faults(3, ipamtest.LostRequest, 0)},
		"NoList":      {"not without knowing what DanmEps there are", ipamtest.OpEndpoints, faults(3, ipamtest.LostRequest, 0)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				a := w.node("n1")
				a4, _ := w.claim(a, dynamic, none)
				w.store.Delete(w.net.Ref)
				w.idle()
				a.Discard(w.net, a4, no)
				w.idle()
				store, s := w.scripted()
				s.set(tc.op, tc.faults)
				for range tc.faults {
					if err := w.endDeletion(store); err == nil {
						w.Errorf("%s: no error, so nobody tries again", tc.reason)
					}
				}
				if err := w.endDeletion(store); err != nil || w.store.Object(w.net.Ref) != nil {
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
		use    func(*world, *claims.Allocator)
	}{
		"Entry": {"an address that a node covers is in use, or about to be", func(w *world, a *claims.Allocator) {
			w.claim(a, dynamic, none)
		}},
		"EntryWithoutAddress": {"an attachment without an address, whose DanmEp may not exist yet", func(w *world, a *claims.Allocator) {
			w.claim(a, none, none)
		}},
		"DanmEp": {"an address that no entry covers any more", func(w *world, a *claims.Allocator) {
			a4, _ := w.claim(a, dynamic, none)
			w.publish(a, "n1", a4, no)
			w.idle()
			if got := w.entry("n1"); got != "-" {
				w.Fatalf("entry %q, want none", got)
			}
		}},
		"DanmEpOfNobody": {"DANM wrote it: it counts for any network of the name", func(w *world, a *claims.Allocator) {
			a4, _ := w.claim(a, dynamic, none)
			a.Discard(w.net, a4, no)
			w.store.AddEndpoint(w.net.Ref, claims.Endpoint{Namespace: "ns", Name: "danm", Node: "n9"})
			w.idle()
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				tc.use(w, w.node("n1"))
				w.store.Delete(w.net.Ref)
				if err := w.endDeletion(w.store); err != nil {
					w.Error(err)
				}
				w.idle()
				if w.store.Object(w.net.Ref) == nil {
					w.Errorf("the network is gone: %s", tc.reason)
				}
			})
		})
	}
}

// Who begins to use the network after it was read has changed it: the finalizer stays.
func TestDeletionMeetsAClaim(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		w.idle()
		w.store.Delete(w.net.Ref)
		ep := w.endpoint("n1", a4, no)
		store := &ipamtest.Faulty{Store: w.store, Next: func(op ipamtest.Op) ipamtest.Fault {
			if op != ipamtest.OpEndpoints {
				return ipamtest.Fault{}
			}
			// After the read: the DanmEp is lost, and its node covers the address again.
			w.store.RemoveEndpoint(ep.Namespace, ep.Name)
			a.Missing(w.key(), ep.Name, a4, no)
			time.Sleep(time.Second)
			return ipamtest.Fault{}
		}}
		w.damaged = true // for a moment nobody covers it
		if err := w.endDeletion(store); !errors.Is(err, claims.ErrConflict) {
			w.Errorf("EndDeletion: got %v, want a conflict", err)
		}
		if w.store.Object(w.net.Ref) == nil {
			w.Error("the network is gone under an address in use")
		}
	})
}

// An object that is older than it was may have lost its users: it recovers first.
func TestDeletionOfAnOlderObject(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		a.Discard(w.net, a4, no)
		w.idle()
		w.store.Delete(w.net.Ref)
		steward := claims.NewSteward(w.store, claims.StewardConfig{})
		steward.Look(w.key(), "1000")
		if done, err := steward.EndDeletion(w.Context(), w.key()); done || !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("EndDeletion() = %t, %v; want it to be tried again", done, err)
		}
		if o := w.store.Object(w.net.Ref); o == nil || o.IPAM.Recovering == nil {
			w.Errorf("got %+v, want it to recover", o)
		}
		if err := w.endDeletion(w.store); err != nil || w.store.Object(w.net.Ref) == nil {
			w.Errorf("it is gone before every node has reported (%v)", err)
		}
		if _, err := steward.Recover(w.Context(), w.key(), nil, nil); err != nil {
			w.Fatal(err)
		}
		if err := w.endDeletion(w.store); err != nil || w.store.Object(w.net.Ref) != nil {
			w.Errorf("it is there after that (%v)", err)
		}
	})
}

// An allocator forgets a network that is gone: nothing is asked about it any
// more, and the next network of the name starts anew.
func TestNetworkGoesUnderAnAttachment(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(store, "n1")
		a4, _ := w.claim(a, dynamic, none)
		a.Published(w.key(), "ep", a4, no)
		o := w.store.Object(w.net.Ref)
		if _, err := w.store.Protect(w.Context(), o, false); err != nil {
			w.Fatal(err)
		}
		w.store.Delete(w.net.Ref) // by force: somebody took the finalizer off
		w.idle()
		asked := len(s.called())
		time.Sleep(time.Hour)
		if got := len(s.called()); got != asked {
			w.Errorf("%d requests about a network that is gone: %v", got-asked, s.called()[asked:])
		}
		w.net = w.store.Create(clusterNetwork("10.0.0.0/24", ""))
		if b4, _ := w.claim(a, dynamic, none); b4 != a4 {
			w.Errorf("got %v of the new network, want its first", b4)
		}
	})
}

// Who gives up on a release may ask again: it goes on meanwhile.
func TestReleaseGivenUp(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(store, "n1")
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		w.idle()
		s.set(ipamtest.OpUpdate, faults(1, ipamtest.Fine, time.Second))
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		if err := a.Return(ctx, w.key(), "ep", a4, no); !errors.Is(err, claims.ErrTryAgain) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v, want to be told to try again, and why", err)
		}
		w.idle()
		if got := w.entry("n1"); got != "10.0.0.1 " {
			w.Errorf("entry %q", got)
		}
		if err := a.Return(w.Context(), w.key(), "ep", a4, no); err != nil {
			w.Error(err)
		}
	})
}
