// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// faults is n times the same fault.
func faults(n int, kind ipamtest.Kind, delay time.Duration) []ipamtest.Fault {
	list := make([]ipamtest.Fault, n)
	for i := range list {
		list[i] = ipamtest.Fault{Kind: kind, Delay: delay}
	}
	return list
}

// Whatever becomes of a write, a claim gets one address and no other is left.
func TestClaimThroughFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		faults []ipamtest.Fault
		// writes that changed something, the finalizer's included.
		writes int
	}{
		"Conflicts":     {"planned afresh each time", faults(9, ipamtest.Conflict, 0), 2},
		"LostReply":     {"the entry shows that it was applied: no second write", faults(1, ipamtest.LostReply, 0), 2},
		"LostRequest":   {"the entry shows that it was not", faults(3, ipamtest.LostRequest, 0), 2},
		"LostAndLost":   {"a lost reply after a lost request", append(faults(1, ipamtest.LostRequest, 0), faults(1, ipamtest.LostReply, 0)...), 2},
		"Twice":         {"the write met a copy of itself: the entry shows that it was applied", faults(1, ipamtest.Twice, 0), 2},
		"LateAndFenced": {"our next write makes the late one a conflict", faults(1, ipamtest.Late, time.Hour), 2},
		"LateBetween":   {"the late one comes first, between our read and our write", []ipamtest.Fault{{Kind: ipamtest.Late, Delay: 50 * time.Millisecond}, {Kind: ipamtest.Fine, Delay: 100 * time.Millisecond}}, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				store, _ := w.scripted(tc.faults...)
				a4, _ := w.claim(w.nodeOver(store, "n1"), dynamic, none)
				store.Wait()
				w.idle()
				if diff := cmp.Diff([]string{a4.String()}, w.bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
				if got := w.entry("n1"); got != a4.String()+" " {
					w.Errorf("%s: entry %q", tc.reason, got)
				}
				if w.store.Writes() != tc.writes {
					w.Errorf("%s: %d writes, want %d", tc.reason, w.store.Writes(), tc.writes)
				}
			})
		})
	}
}

// A request that was sent twice on its way is answered with a conflict, and was applied. The
// node knows its own entry again: it is no sign of an older state.
func TestWritesThatMeetThemselves(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(store, "n1")
		first, _ := w.claim(a, dynamic, none)
		for range 5 {
			s.set(ipamtest.OpUpdate, faults(1, ipamtest.Twice, 0))
			a4, _ := w.claim(a, dynamic, none)
			w.publish(a, "n1", a4, no)
			s.set(ipamtest.OpUpdate, faults(2, ipamtest.Twice, 0))
			w.release(a, "n1", a4, no)
			w.idle()
		}
		if len(w.reports) > 0 {
			w.Errorf("the node reports %v", w.reports)
		}
		if diff := cmp.Diff([]string{first.String()}, w.bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
	})
}

// The same for the write that takes the node's last entry out.
func TestEntriesThatGoTwice(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(store, "n1")
		for _, writes := range []int{1, 2, 3} {
			a4, _ := w.claim(a, dynamic, none)
			s.set(ipamtest.OpUpdate, faults(writes, ipamtest.Twice, 0))
			w.release(a, "n1", a4, no)
			w.idle()
			if held := w.ipam().Held; len(held) > 0 {
				w.Errorf("%d writes are sent twice: got the entries %v, want none", writes, held)
			}
		}
		if len(w.reports) > 0 {
			w.Errorf("the node reports %v", w.reports)
		}
	})
}

// The same for a release: nothing is left, and nothing is freed twice.
func TestReleaseThroughFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]ipamtest.Fault{
		"Conflict":    {Kind: ipamtest.Conflict},
		"LostReply":   {Kind: ipamtest.LostReply},
		"LostRequest": {Kind: ipamtest.LostRequest},
		"Late":        {Kind: ipamtest.Late, Delay: 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				store, s := w.scripted()
				a := w.nodeOver(store, "n1")
				a4, _ := w.claim(a, dynamic, none)
				w.publish(a, "n1", a4, no)
				w.idle()
				s.set(ipamtest.OpUpdate, []ipamtest.Fault{fault, {}, fault})
				w.release(a, "n1", a4, no)
				store.Wait()
				w.idle()
				if w.bits() != nil || w.entry("n1") != "-" {
					w.Errorf("left: %v, entry %q", w.bits(), w.entry("n1"))
				}
			})
		})
	}
}

// A caller may give up at any moment of a commit: before, while or after the
// write is made. What was claimed for it goes back.
func TestGivingUpLeaksNothing(t *testing.T) {
	t.Parallel()
	for after := time.Duration(0); after <= 40*time.Millisecond; after += 2 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *world) {
				store, _ := w.scripted()
				a := w.nodeOver(slow(store), "n1")
				ctx, cancel := context.WithTimeout(w.Context(), after)
				defer cancel()
				a4, a6, err := a.Claim(ctx, w.net, dynamic, dynamic)
				w.idle()
				switch {
				case err == nil && after < 15*time.Millisecond:
					w.Errorf("a claim of four requests took %v", after)
				case err == nil:
					a.Discard(w.net, a4, a6)
				case !errors.Is(err, claims.ErrTryAgain) || !errors.Is(err, context.DeadlineExceeded):
					w.Errorf("got %v, want to be told to try again, and why", err)
				}
				w.idle()
				if w.bits() != nil || w.entry("n1") != "-" {
					w.Errorf("left: %v, entry %q", w.bits(), w.entry("n1"))
				}
			})
		})
	}
}

func TestStoreIsAway(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(store, "n1")
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		b4, _ := w.claim(a, dynamic, none)
		w.idle()

		s.set(ipamtest.OpGet, faults(1000, ipamtest.LostRequest, 0))
		_, _, err := a.Claim(w.Context(), w.net, dynamic, none)
		if !errors.Is(err, claims.ErrTryAgain) || !errors.Is(err, ipamtest.ErrFault) {
			w.Errorf("Claim: %v, want to be told to try again, and why", err)
		}
		if err := a.Return(w.Context(), w.key(), "", a4, no); !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("Return: %v, want ErrTryAgain", err)
		}
		a.Discard(w.net, b4, no)
		time.Sleep(time.Minute)
		s.set(ipamtest.OpGet, nil)
		w.idle()
		if got := w.entry("n1"); got != a4.String()+" " {
			w.Errorf("entry %q; want what was returned, without what was discarded, once the store is back", got)
		}
	})
}

// A store that hangs is a store that is away.
func TestStoreHangs(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		s.set(ipamtest.OpGet, faults(1000, ipamtest.Fine, 24*time.Hour))
		start := time.Now()
		_, _, err := w.nodeOver(store, "n1").Claim(w.Context(), w.net, dynamic, none)
		if !errors.Is(err, claims.ErrTryAgain) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v, want ErrTryAgain", err)
		}
		if took := time.Since(start); took > time.Minute {
			w.Errorf("answered after %v", took)
		}
	})
}

func TestListIsNeededAndAway(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		s.set(ipamtest.OpEndpoints, faults(1000, ipamtest.LostRequest, 0))
		_, _, err := w.nodeOver(store, "n1").Claim(w.Context(), w.net, dynamic, none)
		if !errors.Is(err, claims.ErrUnknownState) || !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("got %v, want ErrUnknownState", err)
		}
		if w.ipam().V4 != nil {
			w.Error("status.ipam was written without knowing what is in use")
		}
	})
}

func TestGroupCommit(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(slow(store), "n1")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { w.claim(a, dynamic, none) })
		}
		wg.Wait()
		if got := strings.Count(strings.Join(s.called(), " "), "Update"); got != 1 {
			w.Errorf("%d status writes for 100 claims made at once: %v", got, s.called())
		}
		if len(w.bits()) != 100 {
			w.Errorf("%d addresses", len(w.bits()))
		}
	})
}

func TestClaimsThatArriveDuringAWriteShareTheNext(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.nodeOver(slow(store), "n1")
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				w.claim(a, dynamic, none)
			})
		}
		wg.Wait()
		if got := strings.Count(strings.Join(s.called(), " "), "Update"); got > 7 {
			w.Errorf("%d writes in 50 ms, with 10 ms for a read and a write: %v", got, s.called())
		}
	})
}

func TestClose(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		s.set(ipamtest.OpGet, faults(1, ipamtest.Fine, 5*time.Second))
		a := w.nodeOver(store, "n1")
		done := make(chan error, 1)
		go func() {
			_, _, err := a.Claim(w.Context(), w.net, dynamic, none)
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		a.Close()
		if took := time.Since(start); took > 0 {
			w.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, claims.ErrClosed) {
			w.Errorf("claim in wait: %v, want ErrClosed", err)
		}
		_, _, err := a.Claim(w.Context(), w.net, dynamic, none)
		ret := a.Return(w.Context(), w.key(), "", addr("10.0.0.1"), no)
		if !errors.Is(err, claims.ErrClosed) || !errors.Is(ret, claims.ErrClosed) {
			w.Errorf("after Close: %v, %v", err, ret)
		}
		a.Discard(w.net, addr("10.0.0.1"), no)
		a.Published(w.key(), "ep", addr("10.0.0.1"), no)
	})
}
