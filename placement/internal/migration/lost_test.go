// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// returned was lost, and has reported for less than Stable since.
func returned(r *Target) { r.Returned = true }

// ordered has the order to remove.
func ordered(r *Target) { r.Ordered = true }

func TestLostAndReturned(t *testing.T) {
	t.Parallel()
	type move struct {
		State     State
		Requested int32
		Returned  bool
	}
	const stable = 30 * time.Second // as long as the reports of target have lasted
	for name, tc := range map[string]struct {
		reason string
		in     Input
		want   []move
	}{
		"lost": {
			"It keeps what it has, and the others grow.",
			Input{Divided: true, Targets: []Target{with(target("east", Active, 0, 4), lost), target("west", Active, 8, 4)}},
			[]move{{Lost, 4, false}, {Active, 8, false}},
		},
		"lost, and wanted": {
			"No other cluster has room: it stays.",
			Input{Divided: true, Targets: []Target{with(target("east", Active, 4, 4), lost), target("west", Active, 4, 4)}},
			[]move{{Active, 4, false}, {Active, 4, false}},
		},
		"lost, deleted": {
			"The deletion of the object is an order to all clusters.",
			Input{Targets: []Target{with(target("east", Lost, 0, 0), lost)}},
			[]move{{Removing, 0, false}},
		},
		"lost, to be removed already": {
			"An order stays an order.",
			Input{Targets: []Target{with(target("east", Removing, 0, 0), lost), with(target("west", Active, 0, 0), wanted)}},
			[]move{{Removing, 0, false}, {Active, 0, false}},
		},
		"lost, to stop already": {
			"It would never say that it has stopped: west starts without it.",
			Input{BreakBeforeMake: true, Targets: []Target{with(target("east", Removing, 0, 0), lost, ordered), with(target("west", Pending, 0, 0), wanted)}},
			[]move{{Lost, 0, false}, {Active, 0, false}},
		},
		"lost, to stop already, divided": {
			"The same holds for a part of the replicas.",
			Input{BreakBeforeMake: true, Divided: true, Targets: []Target{with(target("east", Removing, 0, 0), lost, ordered), target("west", Active, 8, 4)}},
			[]move{{Lost, 0, false}, {Active, 8, false}},
		},
		"silent, to stop already": {
			"It may run: west waits.",
			Input{BreakBeforeMake: true, Targets: []Target{with(target("east", Removing, 0, 0), unreachable, ordered), with(target("west", Pending, 0, 0), wanted)}},
			[]move{{Removing, 0, false}, {Pending, 0, false}},
		},
		"stopped, and gone": {
			"Nothing is left of it.",
			Input{BreakBeforeMake: true, Targets: []Target{with(target("east", Lost, 0, 0), lost, func(r *Target) { r.Removed = true }), with(target("west", Active, 0, 0), wanted)}},
			[]move{{None, 0, false}, {Active, 0, false}},
		},
		"returns, to stop already": {
			"The order that it has is not taken back, also not for the time to settle.",
			Input{BreakBeforeMake: true, Settle: time.Hour, Targets: []Target{with(target("east", Lost, 0, 0), ordered), with(target("west", Active, 0, 0), wanted)}},
			[]move{{Removing, 0, false}, {Active, 0, false}},
		},
		"returns, to stop already, and wanted": {
			"It is the cluster to run the object again.",
			Input{BreakBeforeMake: true, Targets: []Target{with(target("east", Lost, 0, 0), ordered, wanted)}},
			[]move{{Active, 0, true}},
		},
		"returns, break first, with traffic": {
			"Other clusters send traffic to it, and west has no endpoints yet: it stops at once all the same.",
			Input{BreakBeforeMake: true, Targets: []Target{
				with(target("east", Lost, 0, 0), func(r *Target) { r.Serves, r.ReplacementsIn = true, "south" }), with(target("west", Active, 0, 0), wanted, crashing),
			}},
			[]move{{Removing, 0, false}, {Active, 0, false}},
		},
		"returns": {
			"It loses its replicas step by step: the others have been available for long enough.",
			Input{Divided: true, Targets: []Target{target("east", Lost, 0, 4), target("west", Active, 8, 8)}},
			[]move{{Draining, 2, true}, {Active, 8, false}},
		},
		"returns early": {
			"The others are not available.",
			Input{Divided: true, Targets: []Target{target("east", Lost, 0, 4), with(target("west", Active, 8, 8), crashing)}},
			[]move{{Draining, 4, true}, {Active, 8, false}},
		},
		"returns, what it said before": {
			"West loses two replicas only for those which east has reported for long enough since it is back.",
			Input{Divided: true, Targets: []Target{target("east", Lost, 4, 4), target("west", Active, 4, 6)}},
			[]move{{Active, 4, true}, {Active, 6, false}},
		},
		"returned, not for long enough": {
			"The same holds for the next steps.",
			Input{Divided: true, Targets: []Target{
				with(target("east", Active, 4, 4), returned, func(r *Target) { r.Since = t0.Add(10 * time.Second) }), target("west", Active, 4, 6),
			}},
			[]move{{Active, 4, true}, {Active, 6, false}},
		},
		"returned, for long enough": {
			"It counts like any other cluster.",
			Input{Divided: true, Targets: []Target{with(target("east", Active, 4, 4), returned), target("west", Active, 4, 6)}},
			[]move{{Active, 4, false}, {Active, 4, false}},
		},
		"returns, break first": {
			"It runs what runs elsewhere: it stops at once.",
			Input{BreakBeforeMake: true, Targets: []Target{target("east", Lost, 0, 0), with(target("west", Active, 0, 0), wanted, crashing)}},
			[]move{{Removing, 0, false}, {Active, 0, false}},
		},
		"returned, and lost again": {
			"Flapping orders nothing.",
			Input{Divided: true, Targets: []Target{with(target("east", Draining, 0, 3), lost, returned), target("west", Active, 8, 8)}},
			[]move{{Lost, 3, false}, {Active, 8, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.in.Now, tc.in.Stable, tc.in.MaxSurge = t0.Add(30*time.Second), stable, 8
			var got []move
			for _, m := range Step(tc.in).Transitions {
				got = append(got, move{m.State, m.Requested, m.Returned})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
