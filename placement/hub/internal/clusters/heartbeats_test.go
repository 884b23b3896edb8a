// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A heartbeat counts from when the hub observes its change, not by the agent's clock.
func TestHeartbeatsCountFromObservation(t *testing.T) {
	t.Parallel()
	start := time.Unix(100_000, 0)
	type observation struct{ at, renewed time.Duration } // since start; renewed by the agent's clock
	for name, tc := range map[string]struct {
		reason       string
		observations []observation
		want         time.Duration // that remains of 40 s after the last observation
	}{
		"Agent behind":         {"An agent whose clock is two minutes behind is not silent.", []observation{{0, -120 * time.Second}, {10 * time.Second, -110 * time.Second}}, 40 * time.Second},
		"Agent ahead":          {"An agent whose clock is an hour ahead is silent 40 s after its last renewal.", []observation{{0, time.Hour}, {30 * time.Second, time.Hour}}, 10 * time.Second},
		"Agent ahead and dead": {"Without a change the heartbeat ends after 40 s.", []observation{{0, time.Hour}, {40 * time.Second, time.Hour}}, 0},
		"First, fresh":         {"A new leader counts from the stored time.", []observation{{0, -15 * time.Second}}, 25 * time.Second},
		"First, old":           {"A first heartbeat that is old is not valid.", []observation{{0, -41 * time.Second}}, 0},
		"First, in the future": {"A first heartbeat in the future counts from now.", []observation{{0, time.Hour}}, 40 * time.Second},
		"Restored":             {"A heartbeat of a restored backup is no new heartbeat.", []observation{{0, 0}, {30 * time.Second, -time.Minute}}, 10 * time.Second},
		"Set back":             {"After a clock was corrected the next renewal counts.", []observation{{0, time.Hour}, {50 * time.Second, -time.Hour}, {time.Minute, 10*time.Second - time.Hour}}, 40 * time.Second},
		"Unchanged":            {"An unchanged heartbeat is no new heartbeat.", []observation{{0, 0}, {10 * time.Second, 0}, {20 * time.Second, 0}}, 20 * time.Second},
		"New cluster":          {"The hub has observed a new cluster before its first heartbeat.", []observation{{0, -1}, {time.Second, -120 * time.Second}}, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := NewHeartbeats(nil, nil, nil)
			var last Heartbeat
			var now time.Time
			for _, o := range tc.observations {
				lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(40))}}
				if o.renewed != -1 {
					lease.Spec.RenewTime = &metav1.MicroTime{Time: start.Add(o.renewed)}
				}
				now = start.Add(o.at)
				last = h.record("east", lease, false, now)
			}
			if got := last.remaining(now); got != tc.want {
				t.Errorf("%s\nremaining: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
	h := NewHeartbeats(nil, nil, nil)
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: start}}}
	if got := h.record("east", lease, true, start).remaining(start); got != 0 {
		t.Errorf("a heartbeat in a namespace that the hub did not make is valid for %v, want 0", got)
	}
}

// The time of a cluster's last report is known until the cluster leaves the inventory. A heartbeat that
// proves nothing is no report.
func TestObserved(t *testing.T) {
	t.Parallel()
	start := time.Unix(100_000, 0)
	h := NewHeartbeats(nil, nil, nil)
	renewed := func(at time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}}}
	}
	h.record("east", renewed(start.Add(-time.Hour)), false, start.Add(-time.Minute))
	h.record("east", renewed(start), false, start)
	h.record("new", &coordinationv1.Lease{}, false, start)
	h.record("taken", renewed(start), true, start)
	if got := h.Observed(); len(got) != 1 || !got["east"].Equal(start) {
		t.Errorf("got %v, want only east at %v", got, start)
	}
	h.Forget("east")
	if got := h.Observed(); len(got) > 0 {
		t.Errorf("got %v, want no cluster after it has left", got)
	}
}
