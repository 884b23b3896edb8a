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

// Whatever becomes of the requests that end a deletion, the network goes in the
// end, once its last address is free.
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
		"Away":        {"tried again after a rest", ipamtest.OpProtect, faults(20, ipamtest.LostRequest, 0)},
		"NoList":      {"not without knowing what DanmEps there are", ipamtest.OpEndpoints, faults(20, ipamtest.LostRequest, 0)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				store, s := w.scripted()
				a := w.nodeOver(store, "n1")
				a4, _ := w.claim(a, dynamic, none)
				w.publish(a, "n1", a4, no)
				w.idle()
				w.store.Delete(w.net.Ref)
				s.set(tc.op, tc.faults)
				w.release(a, "n1", a4, no)
				time.Sleep(10 * time.Minute)
				if o := w.store.Object(w.net.Ref); o != nil {
					w.Errorf("%s: still there: %+v", tc.reason, o)
				}
			})
		})
	}
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
