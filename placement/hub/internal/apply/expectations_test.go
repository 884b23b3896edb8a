// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// A cache that stays behind, as after a restore, is not read fifty times a second.
func TestBackoff(t *testing.T) {
	t.Parallel()
	e, key := NewExpectations(nil, time.Now), kinds.Key{Namespace: "ns", Name: "web"}
	var all time.Duration
	for range 20 {
		all += e.Backoff(key)
	}
	if all < time.Minute {
		t.Errorf("20 pauses for a cache that stays behind: got %s, want more than a minute", all)
	}
	e.ResetBackoff(key)
	if got := e.Backoff(key); got != firstBackoff {
		t.Errorf("Backoff after ResetBackoff: got %s, want %s", got, firstBackoff)
	}
}

// The status after an order has the reports on it, and a sequence of orders delays it once.
func TestStatusDue(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	now := start
	e, key := NewExpectations(nil, func() time.Time { return now }), kinds.Key{Namespace: "ns", Name: "web"}
	for _, step := range []struct {
		reason       string
		at           time.Duration
		worksWritten bool
		due          bool
		after        time.Duration
	}{
		{"Clusters are about to report on the first order.", 0, true, false, time.Second},
		{"Others may report until then.", 400 * time.Millisecond, false, false, 600 * time.Millisecond},
		{"The reports are written together.", time.Second, false, true, 0},
		{"One write in a second is enough.", 1500 * time.Millisecond, false, false, 500 * time.Millisecond},
		{"Clusters are about to report on a second order.", 9 * time.Second, true, false, time.Second},
		{"A third order follows at once: users do not wait longer.", 10 * time.Second, true, true, 0},
		{"A fourth order waits for its reports again.", 11 * time.Second, true, false, time.Second},
	} {
		now = start.Add(step.at)
		if due, after := e.StatusDue(key, step.worksWritten); due != step.due || after != step.after {
			t.Errorf("%s got %t after %s, want %t after %s", step.reason, due, after, step.due, step.after)
		}
	}
}
