// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// What is held is handed out without a request, and covered before.
func TestHoldServesWithoutAWrite(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.WarmNode(store, "n1", allocator.Config{})
		w.Claim(a, testbed.Dynamic(), testbed.Dynamic())
		asked := len(s.Called())
		for range 2 {
			a4, a6 := w.Claim(a, testbed.Dynamic(), testbed.Dynamic())
			if !strings.Contains(w.Entry("n1"), "-"+"10.0.0.") || !slices.Contains(w.Bits(), a4.String()) || !slices.Contains(w.Bits(), a6.String()) {
				w.Errorf("%v, %v: entry %q, bits %v", a4, a6, w.Entry("n1"), w.Bits())
			}
		}
		if now := s.Called(); len(now) != asked {
			w.Errorf("requests for what is held: %v", now[asked:])
		}
	})
}

// Who claims again right after the first answer finds the warm pool filled. A large one takes
// a while to fill, so that an answer that comes too early is noticed.
func TestAnswerComesAfterTheHoldIsFilled(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/16", ""), func(w *testbed.World) {
		for i := range 20 {
			store, s := w.Scripted()
			a := w.WarmNode(store, fmt.Sprintf("n%d", i), allocator.Config{WarmPoolSize: 512})
			w.Claim(a, testbed.Dynamic(), testbed.None())
			asked := len(s.Called())
			w.Claim(a, testbed.Dynamic(), testbed.None())
			if now := s.Called(); len(now) != asked {
				w.Fatalf("node %d: requests for what is held: %v", i, now[asked:])
			}
		}
	})
}

// The addresses of a give-back are out of the hold before its write is sent: the
// write may be made at any time from then on.
func TestGiveBackLeavesTheHoldFirst(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.WarmNode(store, "n1", allocator.Config{})
		used, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		s.Set(ipamtest.OpUpdate, testbed.Faults(1, ipamtest.Fine, 5*time.Second))
		done := make(chan error, 1)
		go func() { done <- a.ReleaseWarmPool(w.Context()) }()
		synctest.Wait()
		if a4, err := w.ClaimNow(a); err == nil {
			w.Errorf("%v was handed out while its give-back was on its way", a4)
		}
		if err := <-done; err != nil {
			w.Fatal(err)
		}
		if got := w.Entry("n1"); got != used.String()+" " {
			w.Errorf("entry %q, want what is in use alone", got)
		}
	})
}

// An address that becomes a node's own leaves the hold.
func TestReservedLaterLeavesTheHold(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		var nic atomic.Pointer[netip.Addr]
		nic.Store(&netip.Addr{})
		a := w.WarmNode(w.Store, "n1", allocator.Config{Reserved: func(*network.Network) []netip.Addr { return []netip.Addr{*nic.Load()} }})
		w.Claim(a, testbed.Dynamic(), testbed.None())
		own := testbed.Addr("10.0.0.3")
		nic.Store(&own)
		time.Sleep(10 * time.Second)
		a.ObserveVersion(w.Key(), w.Store.Object(w.Net.Ref).ResourceVersion)
		synctest.Wait()
		for range 20 {
			if a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None()); a4 == own {
				w.Fatalf("%v was handed out: it is a node's own by now", a4)
			}
		}
		if slices.Contains(w.Bits(), own.String()) {
			w.Errorf("bits %v", w.Bits())
		}
	})
}

// A node that is cut off hands out nothing that it holds: by now it may be freed.
func TestCutOffHandsOutNothing(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		var cutOff atomic.Bool
		a := w.WarmNode(store, "n1", allocator.Config{Usable: func() bool { return !cutOff.Load() }})
		w.Claim(a, testbed.Dynamic(), testbed.None())
		s.Set(ipamtest.OpGet, testbed.Faults(1000, ipamtest.LostRequest, 0))
		if _, err := w.ClaimNow(a); err != nil {
			w.Errorf("while the hold may be used: %v", err)
		}
		cutOff.Store(true)
		if a4, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
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
			testbed.RunTest(t, testbed.ClusterNetwork(tc.cidr, ""), func(w *testbed.World) {
				a := w.WarmNode(w.Store, "n1", allocator.Config{NodeCount: func() int { return tc.nodes }})
				w.Claim(a, testbed.Dynamic(), testbed.None())
				if got := w.Entry("n1"); got != tc.entry {
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
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{WarmPoolIdleTimeout: 5 * time.Minute})
		for range burst {
			w.Claim(a, testbed.Dynamic(), testbed.None())
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		w.Idle()
		if got := a.Stats().Warm; got < burst {
			w.Errorf("%d held a minute after %d claims, want as many", got, burst)
		}
	})
}

// A hold that nobody takes from goes back.
func TestIdleHoldGoesBack(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{WarmPoolIdleTimeout: time.Minute})
		used, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		time.Sleep(30 * time.Second)
		if a.Stats().Warm == 0 {
			w.Error("the hold went early")
		}
		time.Sleep(time.Minute)
		if got := w.Entry("n1"); got != used.String()+" " || a.Stats().Warm != 0 {
			w.Errorf("entry %q, %d held: nobody has claimed for a minute", got, a.Stats().Warm)
		}
	})
}

// A network in deletion gives nothing more, not even what is held; what is in use
// keeps it there.
func TestDeletionClosesTheHold(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{Cooldown: -1})
		used, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Store.Delete(w.Net.Ref)
		defer w.Watch(a, time.Second)()
		time.Sleep(6 * time.Second)
		if a4, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, allocator.ErrDeleting) {
			w.Errorf("got %v, %v, want ErrDeleting", a4, err)
		}
		if got := w.Entry("n1"); got != used.String()+" " {
			w.Errorf("entry %q, want what is in use alone", got)
		}
		w.Release(a, "n1", used, testbed.NoAddr())
		w.Idle()
		if got := w.Entry("n1"); got != "-" {
			w.Errorf("entry %q after the last release, want none", got)
		}
	})
}
