// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// holder starts an allocator that holds addresses and lets released ones rest,
// with the defaults for what cfg leaves open.
func (w *world) holder(s claims.Store, name string, cfg claims.Config) *claims.Allocator {
	cfg.Node, cfg.NodeUID = name, name+"-uid"
	cfg.Rand = func() float64 { return 0.5 }
	a := claims.New(s, cfg)
	w.nodes = append(w.nodes, a)
	return a
}

// claimNow claims a dynamic IPv4 address and gives up soon; it returns "" then.
func (w *world) claimNow(a *claims.Allocator) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
	defer cancel()
	a4, _, err := a.Claim(ctx, w.net, dynamic, none)
	return a4, err
}

// watched tells an allocator of each version of the network, as a watch does.
func (w *world) watched(a *claims.Allocator, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if o := w.store.Object(w.net.Ref); o != nil {
				a.Look(w.key(), o.ResourceVersion)
			}
			time.Sleep(every)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// What is held is handed out without a request, and covered before.
func TestHoldServesWithoutAWrite(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *world) {
		store, s := w.scripted()
		a := w.holder(store, "n1", claims.Config{})
		w.claim(a, dynamic, dynamic)
		asked := len(s.called())
		for range 2 {
			a4, a6 := w.claim(a, dynamic, dynamic)
			if !strings.Contains(w.entry("n1"), "-"+"10.0.0.") || !slices.Contains(w.bits(), a4.String()) || !slices.Contains(w.bits(), a6.String()) {
				w.Errorf("%v, %v: entry %q, bits %v", a4, a6, w.entry("n1"), w.bits())
			}
		}
		if now := s.called(); len(now) != asked {
			w.Errorf("requests for what is held: %v", now[asked:])
		}
	})
}

// Who claims again right after the first answer finds the warm pool filled. A large one takes
// a while to fill, so that an answer that comes too early is noticed.
func TestAnswerComesAfterTheHoldIsFilled(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/16", ""), func(w *world) {
		for i := range 20 {
			store, s := w.scripted()
			a := w.holder(store, fmt.Sprintf("n%d", i), claims.Config{Hold: 512})
			w.claim(a, dynamic, none)
			asked := len(s.called())
			w.claim(a, dynamic, none)
			if now := s.called(); len(now) != asked {
				w.Fatalf("node %d: requests for what is held: %v", i, now[asked:])
			}
		}
	})
}

// The addresses of a give-back are out of the hold before its write is sent: the
// write may be made at any time from then on.
func TestGiveBackLeavesTheHoldFirst(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.holder(store, "n1", claims.Config{})
		used, _ := w.claim(a, dynamic, none)
		s.set(ipamtest.OpUpdate, faults(1, ipamtest.Fine, 5*time.Second))
		done := make(chan error, 1)
		go func() { done <- a.GiveBack(w.Context()) }()
		synctest.Wait()
		if a4, err := w.claimNow(a); err == nil {
			w.Errorf("%v was handed out while its give-back was on its way", a4)
		}
		if err := <-done; err != nil {
			w.Fatal(err)
		}
		if got := w.entry("n1"); got != used.String()+" " {
			w.Errorf("entry %q, want what is in use alone", got)
		}
	})
}

// An address that becomes a node's own leaves the hold.
func TestReservedLaterLeavesTheHold(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		var nic atomic.Pointer[netip.Addr]
		nic.Store(&netip.Addr{})
		a := w.holder(w.store, "n1", claims.Config{Reserved: func(*network.Network) []netip.Addr { return []netip.Addr{*nic.Load()} }})
		w.claim(a, dynamic, none)
		own := addr("10.0.0.3")
		nic.Store(&own)
		time.Sleep(10 * time.Second)
		a.Look(w.key(), w.store.Object(w.net.Ref).ResourceVersion)
		synctest.Wait()
		for range 20 {
			if a4, _ := w.claim(a, dynamic, none); a4 == own {
				w.Fatalf("%v was handed out: it is a node's own by now", a4)
			}
		}
		if slices.Contains(w.bits(), own.String()) {
			w.Errorf("bits %v", w.bits())
		}
	})
}

// A node that is cut off hands out nothing that it holds: by now it may be freed.
func TestCutOffHandsOutNothing(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		var cutOff atomic.Bool
		a := w.holder(store, "n1", claims.Config{Usable: func() bool { return !cutOff.Load() }})
		w.claim(a, dynamic, none)
		s.set(ipamtest.OpGet, faults(1000, ipamtest.LostRequest, 0))
		if _, err := w.claimNow(a); err != nil {
			w.Errorf("while the hold may be used: %v", err)
		}
		cutOff.Store(true)
		if a4, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("a node that is cut off handed out %v, %v", a4, err)
		}
	})
}

// Where there are fewer than 8 free addresses for each node, none waits on a node.
func TestScarcePoolIsNotHeld(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		cidr   string
		nodes  int
		entry  string
	}{
		"Scarce": {"13 of 14 are free, for two nodes", "10.0.0.0/28", 2, "10.0.0.1 "},
		"Enough": {"13 of 14 are free, for one node", "10.0.0.0/28", 1, "10.0.0.1-10.0.0.4 "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork(tc.cidr, ""), func(w *world) {
				a := w.holder(w.store, "n1", claims.Config{Nodes: func() int { return tc.nodes }})
				w.claim(a, dynamic, none)
				if got := w.entry("n1"); got != tc.entry {
					w.Errorf("%s: entry %q, want %q", tc.reason, got, tc.entry)
				}
			})
		})
	}
}

// Pods that come one at a time are one demand: within a step of the ebb the node keeps
// enough for as many again, as when all their sandboxes die at once.
func TestHoldFollowsABurst(t *testing.T) {
	const burst = 7
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{Rest: 5 * time.Minute})
		for range burst {
			w.claim(a, dynamic, none)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		w.idle()
		if got := a.Stats().Held; got < burst {
			w.Errorf("%d held a minute after %d claims, want as many", got, burst)
		}
	})
}

// A hold that nobody takes from goes back.
func TestIdleHoldGoesBack(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{Rest: time.Minute})
		used, _ := w.claim(a, dynamic, none)
		time.Sleep(30 * time.Second)
		if a.Stats().Held == 0 {
			w.Error("the hold went early")
		}
		time.Sleep(time.Minute)
		if got := w.entry("n1"); got != used.String()+" " || a.Stats().Held != 0 {
			w.Errorf("entry %q, %d held: nobody has claimed for a minute", got, a.Stats().Held)
		}
	})
}

// A network in deletion gives nothing more, not even what is held; what is in use
// keeps it there.
func TestDeletionClosesTheHold(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{Cool: -1})
		used, _ := w.claim(a, dynamic, none)
		w.store.Delete(w.net.Ref)
		defer w.watched(a, time.Second)()
		time.Sleep(6 * time.Second)
		if a4, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrDeleting) {
			w.Errorf("got %v, %v, want ErrDeleting", a4, err)
		}
		if got := w.entry("n1"); got != used.String()+" " {
			w.Errorf("entry %q, want what is in use alone", got)
		}
		w.release(a, "n1", used, no)
		w.idle()
		if got := w.entry("n1"); got != "-" {
			w.Errorf("entry %q after the last release, want none", got)
		}
	})
}
