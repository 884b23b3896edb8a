// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Whatever becomes of a write, a claim gets one address and no other is left.
func TestClaimThroughFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		faults []ipamtest.Fault
		// writes that changed something, the finalizer's included.
		writes int
	}{
		"Conflicts":     {"planned afresh each time", testbed.Faults(9, ipamtest.Conflict, 0), 2},
		"LostReply":     {"the entry shows that it was applied: no second write", testbed.Faults(1, ipamtest.LostReply, 0), 2},
		"LostRequest":   {"the entry shows that it was not", testbed.Faults(3, ipamtest.LostRequest, 0), 2},
		"LostAndLost":   {"a lost reply after a lost request", append(testbed.Faults(1, ipamtest.LostRequest, 0), testbed.Faults(1, ipamtest.LostReply, 0)...), 2},
		"Twice":         {"the write met a copy of itself: the entry shows that it was applied", testbed.Faults(1, ipamtest.Twice, 0), 2},
		"LateAndFenced": {"our next write makes the late one a conflict", testbed.Faults(1, ipamtest.Late, time.Hour), 2},
		"LateBetween":   {"the late one comes first, between our read and our write", []ipamtest.Fault{{Kind: ipamtest.Late, Delay: 50 * time.Millisecond}, {Kind: ipamtest.Fine, Delay: 100 * time.Millisecond}}, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				store, _ := w.Scripted(tc.faults...)
				a4, _ := w.Claim(w.NodeOver(store, "n1"), testbed.Dynamic(), testbed.None())
				store.Wait()
				w.Idle()
				if diff := cmp.Diff([]string{a4.String()}, w.Bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
				if got := w.Entry("n1"); got != a4.String()+" " {
					w.Errorf("%s: entry %q", tc.reason, got)
				}
				if w.Store.Writes() != tc.writes {
					w.Errorf("%s: %d writes, want %d", tc.reason, w.Store.Writes(), tc.writes)
				}
			})
		})
	}
}

// A request that was sent twice on its way is answered with a conflict, and was applied. The
// node knows its own entry again: it is no sign of an older state.
func TestWritesThatMeetThemselves(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(store, "n1")
		first, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		for range 5 {
			s.Set(ipamtest.OpUpdate, testbed.Faults(1, ipamtest.Twice, 0))
			a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
			w.Publish(a, "n1", a4, testbed.NoAddr())
			s.Set(ipamtest.OpUpdate, testbed.Faults(2, ipamtest.Twice, 0))
			w.Release(a, "n1", a4, testbed.NoAddr())
			w.Idle()
		}
		if len(w.Reports) > 0 {
			w.Errorf("the node reports %v", w.Reports)
		}
		if diff := cmp.Diff([]string{first.String()}, w.Bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
	})
}

// The same for the write that takes the node's last entry out.
func TestEntriesThatGoTwice(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(store, "n1")
		for _, writes := range []int{1, 2, 3} {
			a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
			s.Set(ipamtest.OpUpdate, testbed.Faults(writes, ipamtest.Twice, 0))
			w.Release(a, "n1", a4, testbed.NoAddr())
			w.Idle()
			if held := w.IPAM().Held; len(held) > 0 {
				w.Errorf("%d writes are sent twice: got the entries %v, want none", writes, held)
			}
		}
		if len(w.Reports) > 0 {
			w.Errorf("the node reports %v", w.Reports)
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
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				store, s := w.Scripted()
				a := w.NodeOver(store, "n1")
				a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
				w.Publish(a, "n1", a4, testbed.NoAddr())
				w.Idle()
				s.Set(ipamtest.OpUpdate, []ipamtest.Fault{fault, {}, fault})
				w.Release(a, "n1", a4, testbed.NoAddr())
				store.Wait()
				w.Idle()
				if w.Bits() != nil || w.Entry("n1") != "-" {
					w.Errorf("left: %v, entry %q", w.Bits(), w.Entry("n1"))
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
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *testbed.World) {
				store, _ := w.Scripted()
				a := w.NodeOver(slow(store), "n1")
				ctx, cancel := context.WithTimeout(w.Context(), after)
				defer cancel()
				a4, a6, err := a.Claim(ctx, w.Net, testbed.Dynamic(), testbed.Dynamic())
				w.Idle()
				switch {
				case err == nil && after < 15*time.Millisecond:
					w.Errorf("a claim of four requests took %v", after)
				case err == nil:
					a.Discard(w.Net, a4, a6)
				case !errors.Is(err, status.ErrTryAgain) || !errors.Is(err, context.DeadlineExceeded):
					w.Errorf("got %v, want to be told to try again, and why", err)
				}
				w.Idle()
				if w.Bits() != nil || w.Entry("n1") != "-" {
					w.Errorf("left: %v, entry %q", w.Bits(), w.Entry("n1"))
				}
			})
		})
	}
}

func TestStoreIsAway(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(store, "n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		b4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Idle()

		s.Set(ipamtest.OpGet, testbed.Faults(1000, ipamtest.LostRequest, 0))
		_, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
		if !errors.Is(err, status.ErrTryAgain) || !errors.Is(err, ipamtest.ErrFault) {
			w.Errorf("Claim: %v, want to be told to try again, and why", err)
		}
		if err := a.ReturnToEntry(w.Context(), w.Key(), "", a4, testbed.NoAddr()); !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("Return: %v, want ErrTryAgain", err)
		}
		a.Discard(w.Net, b4, testbed.NoAddr())
		time.Sleep(time.Minute)
		s.Set(ipamtest.OpGet, nil)
		w.Idle()
		if got := w.Entry("n1"); got != a4.String()+" " {
			w.Errorf("entry %q; want what was returned, without what was discarded, once the store is back", got)
		}
	})
}

// A store that hangs is a store that is away.
func TestStoreHangs(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		s.Set(ipamtest.OpGet, testbed.Faults(1000, ipamtest.Fine, 24*time.Hour))
		start := time.Now()
		_, _, err := w.NodeOver(store, "n1").Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
		if !errors.Is(err, status.ErrTryAgain) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v, want ErrTryAgain", err)
		}
		if took := time.Since(start); took > time.Minute {
			w.Errorf("answered after %v", took)
		}
	})
}

func TestListIsNeededAndAway(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		s.Set(ipamtest.OpEndpoints, testbed.Faults(1000, ipamtest.LostRequest, 0))
		_, _, err := w.NodeOver(store, "n1").Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
		if !errors.Is(err, status.ErrUnknownState) || !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("got %v, want ErrUnknownState", err)
		}
		if w.IPAM().V4 != nil {
			w.Error("status.ipam was written without knowing what is in use")
		}
	})
}

func TestGroupCommit(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(slow(store), "n1")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { w.Claim(a, testbed.Dynamic(), testbed.None()) })
		}
		wg.Wait()
		if got := strings.Count(strings.Join(s.Called(), " "), "Update"); got != 1 {
			w.Errorf("%d status writes for 100 claims made at once: %v", got, s.Called())
		}
		if len(w.Bits()) != 100 {
			w.Errorf("%d addresses", len(w.Bits()))
		}
	})
}

func TestClaimsThatArriveDuringAWriteShareTheNext(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.NodeOver(slow(store), "n1")
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				w.Claim(a, testbed.Dynamic(), testbed.None())
			})
		}
		wg.Wait()
		if got := strings.Count(strings.Join(s.Called(), " "), "Update"); got > 7 {
			w.Errorf("%d writes in 50 ms, with 10 ms for a read and a write: %v", got, s.Called())
		}
	})
}

func TestClose(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		s.Set(ipamtest.OpGet, testbed.Faults(1, ipamtest.Fine, 5*time.Second))
		a := w.NodeOver(store, "n1")
		done := make(chan error, 1)
		go func() {
			_, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		a.Close()
		if took := time.Since(start); took > 0 {
			w.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, allocator.ErrClosed) {
			w.Errorf("claim in wait: %v, want ErrClosed", err)
		}
		_, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
		ret := a.ReturnToEntry(w.Context(), w.Key(), "", testbed.Addr("10.0.0.1"), testbed.NoAddr())
		if !errors.Is(err, allocator.ErrClosed) || !errors.Is(ret, allocator.ErrClosed) {
			w.Errorf("after Close: %v, %v", err, ret)
		}
		a.Discard(w.Net, testbed.Addr("10.0.0.1"), testbed.NoAddr())
		a.MarkPublished(w.Key(), "ep", testbed.Addr("10.0.0.1"), testbed.NoAddr())
	})
}
