// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Unix(1000, 0)

// at is a row that has what is asked, all available.
func at(cluster string, state State, want, asked int32) Target {
	return Target{
		Cluster: cluster, Wanted: want > 0, Desired: want, State: state, Requested: asked, Since: t0,
		Reachable: true, ReportCurrent: state == Active || state == Draining, Ready: true, Available: asked, Total: asked,
	}
}

func with(r Target, change func(*Target)) Target {
	change(&r)
	return r
}

func TestStep(t *testing.T) {
	t.Parallel()
	type move struct {
		State State
		Asked int32
	}
	cases := map[string]struct {
		in      Input
		want    []move
		blocked string
		reason  string
	}{
		"first": {
			in:     Input{Divided: true, MaxSurge: 3, Targets: []Target{at("east", None, 3, 0)}},
			want:   []move{{Active, 3}},
			reason: "a new object is asked for at once",
		},
		"move begins": {
			in:      Input{Divided: true, MaxSurge: 3, Targets: []Target{at("east", Active, 0, 3), at("west", None, 3, 0)}},
			want:    []move{{Draining, 3}, {Active, 3}},
			blocked: "3 replicas stay in east until more are available: 3 of 3 are",
			reason:  "west grows before east shrinks",
		},
		"small surge": {
			in:      Input{Divided: true, MaxSurge: 1, Targets: []Target{at("east", Active, 0, 3), at("west", None, 3, 0)}},
			want:    []move{{Draining, 3}, {Active, 1}},
			blocked: "3 replicas stay in east until more are available: 3 of 3 are",
			reason:  "never more than desired plus surge is asked",
		},
		"some have come": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				at("east", Draining, 0, 3), with(at("west", Active, 3, 3), func(r *Target) { r.Available = 2 }),
			}},
			want:    []move{{Draining, 1}, {Active, 3}},
			blocked: "1 replicas stay in east until more are available: 3 of 3 are",
			reason:  "east gives up what west has more than is needed",
		},
		"may miss one": {
			in: Input{Divided: true, MaxSurge: 0, MaxUnavailable: 1, Targets: []Target{
				at("east", Draining, 0, 3), at("west", None, 3, 0),
			}},
			want:    []move{{Draining, 2}, {Pending, 0}},
			blocked: "2 replicas stay in east until more are available: 2 of 2 are",
			reason:  "without surge the first step is to give up what may be missing",
		},
		"empty": {
			in:     Input{Divided: true, MaxSurge: 3, Now: t0, Targets: []Target{at("east", Draining, 0, 0), at("west", Active, 3, 3)}},
			want:   []move{{Removing, 0}, {Active, 3}},
			reason: "a cluster without replicas gets the order",
		},
		"settling": {
			in: Input{Divided: true, MaxSurge: 3, Settle: time.Minute, Now: t0.Add(time.Second), Targets: []Target{
				at("east", Draining, 0, 0), at("west", Active, 3, 3),
			}},
			want:   []move{{Draining, 0}, {Active, 3}},
			reason: "but keeps the object for a while, for connections to end",
		},
		"order carried out": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				with(at("east", Removing, 0, 0), func(r *Target) { r.Removed = true }), at("west", Active, 3, 3),
			}},
			want:   []move{{None, 0}, {Active, 3}},
			reason: "the row goes when the cluster has nothing left",
		},
		"wanted again while removed": {
			in:     Input{Divided: true, MaxSurge: 3, Targets: []Target{at("east", Removing, 3, 0)}},
			want:   []move{{Active, 3}},
			reason: "an order that is not carried out is taken back",
		},
		"whole, wanted again while removed": {
			in:      Input{Targets: []Target{with(at("east", Removing, 0, 0), func(r *Target) { r.Wanted = true }), at("west", Active, 0, 0)}},
			want:    []move{{Active, 0}, {Draining, 0}},
			blocked: "east is not ready (Active)",
			reason:  "and the other stays until it is back",
		},
		"not in the inventory": {
			in: Input{Targets: []Target{
				with(at("east", Draining, 0, 0), func(r *Target) { r.NotInInventory, r.Reachable = true, false }),
				with(at("west", Active, 0, 0), func(r *Target) { r.Wanted = true }),
			}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "east is not in the inventory: what it has stays there",
			reason:  "a Cluster that is made again removes nothing",
		},
		"unreachable": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				with(at("east", Draining, 0, 3), func(r *Target) { r.Reachable = false }), at("west", Active, 3, 3),
			}},
			want:    []move{{Draining, 3}, {Active, 3}},
			blocked: "east cannot be reached: its 3 replicas stay as they are",
			reason:  "unreachable is not lost, and would shrink at an hour nobody chose",
		},
		"unreachable, without replicas": {
			in: Input{Targets: []Target{
				with(at("east", Draining, 0, 0), func(r *Target) { r.Reachable = false }),
				with(at("west", Active, 0, 0), func(r *Target) { r.Wanted = true }),
			}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "east cannot be reached: what it has stays there",
			reason:  "an order that waits for east to return could not be taken back in time",
		},
		"no policy, in mid-move": {
			in: Input{NoPolicy: true, Targets: []Target{
				at("east", Removing, 0, 0),
				{Cluster: "west", Wanted: true, Reachable: true, State: Pending, Since: t0},
			}},
			want:   []move{{Removing, 0}, {Pending, 0}},
			reason: "what may have to run once does not start before the other is gone",
		},
		"no policy, counted, in mid-move": {
			in: Input{NoPolicy: true, Divided: true, Targets: []Target{
				at("east", Draining, 0, 2), with(at("west", Pending, 2, 0), func(r *Target) { r.Available, r.Total = 0, 0 }),
			}},
			want:    []move{{Draining, 2}, {Pending, 0}},
			blocked: "2 replicas stay in east until more are available: 2 of 2 are",
			reason:  "the same for replicas",
		},
		"break first, unreachable": {
			in: Input{BreakBeforeMake: true, Targets: []Target{
				at("east", Active, 0, 0),
				{Cluster: "west", Wanted: true, State: Pending, Since: t0},
			}},
			want:    []move{{Draining, 0}, {Pending, 0}},
			blocked: "west cannot be reached: what is elsewhere stays there",
			reason:  "what is removed from east would run nowhere",
		},
		"nowhere": {
			in:     Input{Divided: true, Targets: []Target{at("east", Active, 0, 3), at("west", Active, 0, 2)}},
			want:   []move{{Removing, 0}, {Removing, 0}},
			reason: "nothing is wanted, so nothing must be kept",
		},
		"scale down in one": {
			in:     Input{Divided: true, Targets: []Target{with(at("east", Active, 1, 5), func(r *Target) { r.Available = 0 })}},
			want:   []move{{Active, 1}},
			reason: "one cluster's own controller takes the Pods that are not available first",
		},
		"deadline": {
			in: Input{
				Divided: true, MaxSurge: 3, Deadline: time.Minute, ProceedAtDeadline: true, DesiredSince: t0, Now: t0.Add(time.Hour),
				Targets: []Target{at("east", Draining, 0, 3), with(at("west", Active, 3, 3), func(r *Target) { r.Available = 0 })},
			},
			want:   []move{{Draining, 0}, {Active, 3}},
			reason: "whoever says Proceed takes the gap",
		},
		"break first": {
			in:      Input{Divided: true, BreakBeforeMake: true, Targets: []Target{at("east", Active, 0, 2), at("west", None, 2, 0)}},
			want:    []move{{Draining, 0}, {Pending, 0}},
			blocked: "east must be done first: what is there must not run twice",
			reason:  "west gets nothing while east may run",
		},
		"break first, broken": {
			in: Input{Divided: true, BreakBeforeMake: true, Targets: []Target{
				with(at("east", Removing, 0, 0), func(r *Target) { r.Removed = true }), at("west", Pending, 2, 0),
			}},
			want:   []move{{None, 0}, {Active, 2}},
			reason: "and then all at once",
		},
		"whole": {
			in:      Input{Targets: []Target{at("east", Active, 0, 0), {Cluster: "west", Wanted: true, Reachable: true}}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "west is not ready (Active)",
			reason:  "a ConfigMap stays in east until west has it",
		},
		"whole, taken over": {
			in:     Input{Targets: []Target{at("east", Draining, 0, 0), with(at("west", Active, 0, 0), func(r *Target) { r.Wanted = true })}},
			want:   []move{{Removing, 0}, {Active, 0}},
			reason: "and goes then",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := Step(tc.in)
			var got []move
			for _, m := range out.Transitions {
				got = append(got, move{m.State, m.Requested})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if out.Blocked != tc.blocked {
				t.Errorf("%s: blocked %q, want %q", tc.reason, out.Blocked, tc.blocked)
			}
		})
	}
}
