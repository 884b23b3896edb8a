// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	t.Parallel()
	now := t0.Add(time.Minute)
	ahead := now.Add(time.Minute)
	cases := map[string]struct {
		in      Input
		since   time.Time // of the first target
		state   State
		requeue time.Duration
		reason  string
	}{
		"settling": {
			in:    Input{Settle: 90 * time.Second, Targets: []Target{target("east", Draining, 0, 0), target("west", Active, 3, 3)}},
			since: t0, state: Draining, requeue: 30 * time.Second,
			reason: "a minute has passed",
		},
		"settling, another clock was ahead": {
			in: Input{Settle: 90 * time.Second, Targets: []Target{
				with(target("east", Draining, 0, 0), func(r *Target) { r.Since = ahead }), target("west", Active, 3, 3),
			}},
			since: now, state: Draining, requeue: 90 * time.Second,
			reason: "it settles once more, and not until the other clock's time",
		},
		"deadline, another clock was ahead": {
			in: Input{ProceedAtDeadline: true, Deadline: 10 * time.Second, DesiredSince: ahead, Targets: []Target{
				target("east", Draining, 0, 3), with(target("west", Active, 3, 3), crashing),
			}},
			since: t0, state: Draining, requeue: 10 * time.Second,
			reason: "the step comes back after the deadline",
		},
		"removing": {
			in:    Input{Targets: []Target{target("east", Removing, 0, 3), target("west", Active, 3, 3)}},
			since: t0, state: Removing,
			reason: "what the Work still requests is not what is stored: nothing changes",
		},
		"the last shrink, another clock was ahead": {
			in: Input{Targets: []Target{
				with(target("east", Draining, 0, 2), fallback(3), func(r *Target) { r.Since = ahead }), target("west", Active, 3, 3),
			}},
			since: now, state: Draining, requeue: recheck,
			reason: "west's next heartbeat is after this step",
		},
		"not available for long enough": {
			in:    Input{Targets: []Target{target("east", Draining, 0, 3), with(target("west", Active, 3, 3), only(0, 3))}},
			since: t0, state: Draining, requeue: recheck,
			reason: "a heartbeat alone makes it long enough",
		},
		"not available": {
			in:    Input{Targets: []Target{target("east", Draining, 0, 3), with(target("west", Active, 3, 3), crashing)}},
			since: t0, state: Draining,
			reason: "nothing changes without a report",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.in.Divided, tc.in.Now = true, now
			out := Step(tc.in)
			m := out.Transitions[0]
			if !m.Since.Equal(tc.since) || m.State != tc.state || out.RequeueAfter != tc.requeue {
				t.Errorf("%s: got %s since %s, again after %s; want %s since %s, again after %s",
					tc.reason, m.State, m.Since, out.RequeueAfter, tc.state, tc.since, tc.requeue)
			}
		})
	}
}
