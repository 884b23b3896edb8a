// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// hostile is a network of which n2, whose machine was taken over, says what it likes.
type hostile struct {
	*testbed.World
	n1        *allocator.Allocator
	collector *gc.Collector
	begun     map[time.Time]bool // the recoveries that began
}

func inHostileWorld(t *testing.T, f func(h *hostile)) {
	t.Helper()
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		h := &hostile{World: w, n1: w.Node("n1"), collector: gc.NewCollector(w.Store, gc.Config{}), begun: map[time.Time]bool{}}
		w.Claim(h.n1, testbed.Dynamic(), testbed.None())
		f(h)
	})
}

// write changes what n2 may write: its own entry, and its own name in done.
func (h *hostile) write(entry *v1.RollbackReport, reports bool) {
	h.Helper()
	ipam := h.IPAM().DeepCopy()
	if ipam.Held == nil {
		ipam.Held = map[string]v1.HeldAddresses{}
	}
	ipam.Held["n2"] = v1.HeldAddresses{UID: "n2-uid", Seq: 1, Rollback: entry}
	if rec := ipam.Recovering; rec != nil && reports && !slices.Contains(rec.ReportedNodes, "n2") {
		rec.ReportedNodes = append(rec.ReportedNodes, "n2")
	}
	h.Store.SetIPAM(h.Net.Ref, ipam)
}

// controller does what the controller does, and n1 reports to what it finds.
func (h *hostile) controller() (awaited []string) {
	h.Helper()
	time.Sleep(time.Millisecond) // no two recoveries begin at one moment
	awaited, err := h.collector.Recover(h.Context(), h.Key(), []string{"n1", "n2"}, nil)
	if err != nil {
		h.Fatal(err)
	}
	if rec := h.IPAM().Recovering; rec != nil {
		h.begun[rec.StartTime.Time] = true
		h.n1.ReportToRecovery(h.Key())
	}
	synctest.Wait()
	return awaited
}

// served reports whether n1 gets an address.
func (h *hostile) served() bool {
	h.Helper()
	_, _, err := h.n1.Claim(h.Context(), h.Net, testbed.Dynamic(), testbed.None())
	if err != nil && !errors.Is(err, status.ErrTryAgain) {
		h.Fatal(err)
	}
	return err == nil
}

// A node that reports one rollback after the other stops the others three times in ten
// minutes, however it does that.
func TestReportsOfOneNodeAreBounded(t *testing.T) {
	t.Parallel()
	now := func(h *hostile) *metav1.MicroTime {
		if rec := h.IPAM().Recovering; rec != nil {
			return &rec.StartTime
		}
		return nil
	}
	cases := map[string]struct {
		reason string
		attack func(h *hostile)
	}{
		"AfterEach": {"it reports as it should, and finds the next rollback at once", func(h *hostile) {
			h.write(&v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion, RecoveryStartTime: now(h)}, false)
			h.controller()
			h.write(nil, true)
		}},
		"During": {"it says each time that the recovery which runs was brought back", func(h *hostile) {
			h.write(&v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion, RecoveryStartTime: now(h)}, true)
		}},
		"Always": {"it never takes its report back", func(h *hostile) {
			h.write(&v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}, false)
			h.controller()
			h.write(nil, true)
			h.controller()
			h.write(&v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}, true)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inHostileWorld(t, func(h *hostile) {
				for range 9 * 60 {
					tc.attack(h)
					h.controller()
					time.Sleep(time.Second)
				}
				if len(h.begun) != 3 {
					h.Errorf("%s: %d recoveries in 9 minutes, want 3", tc.reason, len(h.begun))
				}
				h.write(&v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}, true)
				h.controller()
				if _, deferred := h.IPAM().RecoveryDeferredUntil["n2"]; !deferred || !h.served() {
					h.Errorf("%s: deferred %v, and n1 gets no address", tc.reason, h.IPAM().RecoveryDeferredUntil)
				}
				n2 := h.Node("n2") // it is itself again, and its report still stands
				if _, _, err := n2.Claim(h.Context(), h.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
					h.Errorf("%s: a claim of the deferred node: %v, want ErrTryAgain", tc.reason, err)
				}
				time.Sleep(10 * time.Minute)
				h.controller()
				if h.IPAM().Recovering == nil || h.IPAM().RecoveryDeferredUntil != nil {
					h.Errorf("%s: its report is not heard when the time is over: %+v", tc.reason, h.IPAM())
				}
				n2.ReportToRecovery(h.Key())
				synctest.Wait()
				if awaited := h.controller(); len(awaited) > 0 || h.Rollback("n2") != nil || !h.served() {
					h.Errorf("%s: awaited %v, n2 reports %v", tc.reason, awaited, h.Rollback("n2"))
				}
			})
		})
	}
}

// A report of a rollback says nothing else than it has to, and each part counts.
func TestReportsOfRollbacks(t *testing.T) {
	t.Parallel()
	s1 := metav1.NewMicroTime(time.Unix(1000, 0))
	s2 := metav1.NewMicroTime(time.Unix(2000, 0))
	later := metav1.NewMicroTime(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	report := func(rec *metav1.MicroTime) v1.HeldAddresses {
		return v1.HeldAddresses{Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion, RecoveryStartTime: rec}}
	}
	cases := map[string]struct {
		reason     string
		name       string
		entry      v1.HeldAddresses
		running    *metav1.MicroTime
		deferred   *metav1.MicroTime
		begins     bool
		recovering bool
	}{
		"First":       {reason: "the object was in no recovery", name: "n2", entry: report(nil), begins: true, recovering: true},
		"Ended":       {reason: "the recovery that it was in is over", name: "n2", entry: report(&s1), begins: true, recovering: true},
		"BroughtBack": {reason: "the recovery that runs is what the older state had", name: "n2", entry: report(&s1), running: &s1, begins: true, recovering: true},
		"Answered":    {reason: "another recovery has begun since", name: "n2", entry: report(&s1), running: &s2, recovering: true},
		"None":        {reason: "a recovery without a report", name: "n2", running: &s1, recovering: true},
		"Quarantine":  {reason: "no node has that name", name: "!quarantine", entry: report(nil)},
		"Deferred":    {reason: "it has reported too many", name: "n2", entry: report(nil), deferred: &later},
		"Silent":      {reason: "it is deferred, and takes its report back: the next one stops nobody either", name: "n2", deferred: &later},
		"Expired":     {reason: "the time is over, and it reports nothing", name: "n2", deferred: &s1, begins: true},
		"Over":        {reason: "the time is over, and the controller has not looked yet", name: "n2", entry: report(nil), deferred: &s1, begins: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &status.Object{IPAM: &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{tc.name: tc.entry}}}
			if tc.running != nil {
				o.IPAM.Recovering = &v1.RecoveryStatus{StartTime: *tc.running}
			}
			if tc.deferred != nil {
				o.IPAM.RecoveryDeferredUntil = map[string]metav1.MicroTime{tc.name: *tc.deferred}
			}
			got := fmt.Sprint(o.RollbackDue(time.Unix(3000, 0)), o.Recovering())
			if want := fmt.Sprint(tc.begins, tc.recovering); got != want {
				t.Errorf("%s: due and recovering are %s, want %s", tc.reason, got, want)
			}
		})
	}
}

// The report of a node that is left out, or whose Node is gone, ends with the recovery: it
// would begin the next one.
func TestReportsOfThoseLeftOutEnd(t *testing.T) {
	inHostileWorld(t, func(h *hostile) {
		h.write(&v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}, false)
		h.controller()
		if awaited, err := h.collector.Recover(h.Context(), h.Key(), []string{"n1", "n2"}, []string{"n2"}); err != nil || awaited != nil {
			h.Fatalf("awaited %v: %v", awaited, err)
		}
		if h.Rollback("n2") != nil || h.Store.Object(h.Net.Ref).Recovering() || !h.served() {
			h.Errorf("n2 was left out, and %+v", h.IPAM())
		}
	})
}

// The time until which a node is deferred outlives the controller that set it.
func TestDeferralsOutliveTheLeader(t *testing.T) {
	inHostileWorld(t, func(h *hostile) {
		until := metav1.NewMicroTime(time.Now().Add(time.Minute))
		ipam := h.IPAM().DeepCopy()
		ipam.RecoveryDeferredUntil = map[string]metav1.MicroTime{"n2": until}
		h.Store.SetIPAM(h.Net.Ref, ipam)
		h.write(&v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}, false)
		h.controller()
		if h.IPAM().Recovering != nil || !h.served() {
			h.Errorf("another leader heard n2 before %v: %+v", until, h.IPAM())
		}
		time.Sleep(time.Minute)
		h.controller()
		if h.IPAM().Recovering == nil || h.IPAM().RecoveryDeferredUntil != nil {
			h.Errorf("n2 is not heard after %v: %+v", until, h.IPAM())
		}
	})
}
