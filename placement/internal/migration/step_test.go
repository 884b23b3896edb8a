// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Unix(1000, 0)

// target returns a target with all requested replicas available.
func target(cluster string, state State, desired, requested int32) Target {
	return Target{
		Cluster: cluster, Wanted: desired > 0, Desired: desired, State: state, Requested: requested, Since: t0,
		Reachable: true, ReportCurrent: state == Active || state == Draining, Ready: true, Available: requested, Total: requested,
	}
}

func with(t Target, change func(*Target)) Target {
	change(&t)
	return t
}

func TestStep(t *testing.T) {
	t.Parallel()
	type move struct {
		State     State
		Requested int32
	}
	cases := map[string]struct {
		in      Input
		want    []move
		blocked string
		reason  string
	}{
		"first": {
			in:     Input{Divided: true, MaxSurge: 3, Targets: []Target{target("east", None, 3, 0)}},
			want:   []move{{Active, 3}},
			reason: "a new object is requested at once",
		},
		"move begins": {
			in:      Input{Divided: true, MaxSurge: 3, Targets: []Target{target("east", Active, 0, 3), target("west", None, 3, 0)}},
			want:    []move{{Draining, 3}, {Active, 3}},
			blocked: "3 replicas stay in east until more are available: 3 of 3 are",
			reason:  "west scales up before east scales down",
		},
		"small surge": {
			in:      Input{Divided: true, MaxSurge: 1, Targets: []Target{target("east", Active, 0, 3), target("west", None, 3, 0)}},
			want:    []move{{Draining, 3}, {Active, 1}},
			blocked: "3 replicas stay in east until more are available: 3 of 3 are",
			reason:  "at most the desired replicas plus the surge are requested",
		},
		"some are available": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				target("east", Draining, 0, 3), with(target("west", Active, 3, 3), func(r *Target) { r.Available = 2 }),
			}},
			want:    []move{{Draining, 1}, {Active, 3}},
			blocked: "1 replicas stay in east until more are available: 3 of 3 are",
			reason:  "east scales down by the surplus of available replicas",
		},
		"one may be unavailable": {
			in: Input{Divided: true, MaxSurge: 0, MaxUnavailable: 1, Targets: []Target{
				target("east", Draining, 0, 3), target("west", None, 3, 0),
			}},
			want:    []move{{Draining, 2}, {Pending, 0}},
			blocked: "2 replicas stay in east until more are available: 2 of 2 are",
			reason:  "without a surge, the first step removes what may be unavailable",
		},
		"empty": {
			in:     Input{Divided: true, MaxSurge: 3, Now: t0, Targets: []Target{target("east", Draining, 0, 0), target("west", Active, 3, 3)}},
			want:   []move{{Removing, 0}, {Active, 3}},
			reason: "the removal is ordered in a cluster without replicas",
		},
		"settling": {
			in: Input{Divided: true, MaxSurge: 3, Settle: time.Minute, Now: t0.Add(time.Second), Targets: []Target{
				target("east", Draining, 0, 0), target("west", Active, 3, 3),
			}},
			want:   []move{{Draining, 0}, {Active, 3}},
			reason: "the cluster keeps the object for the settle time, so that connections can end",
		},
		"order carried out": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				with(target("east", Removing, 0, 0), func(r *Target) { r.Removed = true }), target("west", Active, 3, 3),
			}},
			want:   []move{{None, 0}, {Active, 3}},
			reason: "the target is dropped when the cluster has removed the object",
		},
		"wanted again while removed": {
			in:     Input{Divided: true, MaxSurge: 3, Targets: []Target{target("east", Removing, 3, 0)}},
			want:   []move{{Active, 3}},
			reason: "an order that is not carried out is withdrawn",
		},
		"whole, wanted again while removed": {
			in:      Input{Targets: []Target{with(target("east", Removing, 0, 0), func(r *Target) { r.Wanted = true }), target("west", Active, 0, 0)}},
			want:    []move{{Active, 0}, {Draining, 0}},
			blocked: "east is not ready (Active)",
			reason:  "the other cluster stays until the object is ready again",
		},
		"not in the inventory": {
			in: Input{Targets: []Target{
				with(target("east", Draining, 0, 0), func(r *Target) { r.NotInInventory, r.Reachable = true, false }),
				with(target("west", Active, 0, 0), func(r *Target) { r.Wanted = true }),
			}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "east is not in the inventory: the object stays there",
			reason:  "a Cluster that is created again must not remove objects",
		},
		"unreachable": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				with(target("east", Draining, 0, 3), func(r *Target) { r.Reachable = false }), target("west", Active, 3, 3),
			}},
			want:    []move{{Draining, 3}, {Active, 3}},
			blocked: "east cannot be reached: its 3 replicas stay as they are",
			reason:  "an unreachable cluster may run the object, and would scale down at an unknown time",
		},
		"unreachable, without replicas": {
			in: Input{Targets: []Target{
				with(target("east", Draining, 0, 0), func(r *Target) { r.Reachable = false }),
				with(target("west", Active, 0, 0), func(r *Target) { r.Wanted = true }),
			}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "east cannot be reached: the object stays there",
			reason:  "an order that waits for east could not be withdrawn in time",
		},
		"no policy, during a move": {
			in: Input{NoPolicy: true, Targets: []Target{
				target("east", Removing, 0, 0),
				{Cluster: "west", Wanted: true, Reachable: true, State: Pending, Since: t0},
			}},
			want:   []move{{Removing, 0}, {Pending, 0}},
			reason: "an object that may have to run once does not start before the removal",
		},
		"no policy, divided, during a move": {
			in: Input{NoPolicy: true, Divided: true, Targets: []Target{
				target("east", Draining, 0, 2), with(target("west", Pending, 2, 0), func(r *Target) { r.Available, r.Total = 0, 0 }),
			}},
			want:    []move{{Draining, 2}, {Pending, 0}},
			blocked: "2 replicas stay in east until more are available: 2 of 2 are",
			reason:  "replicas do not start before the removal either",
		},
		"break first, unreachable": {
			in: Input{BreakBeforeMake: true, Targets: []Target{
				target("east", Active, 0, 0),
				{Cluster: "west", Wanted: true, State: Pending, Since: t0},
			}},
			want:    []move{{Draining, 0}, {Pending, 0}},
			blocked: "west cannot be reached: the object stays in its present clusters",
			reason:  "without east, the object would run in no cluster",
		},
		"no cluster wanted": {
			in:     Input{Divided: true, Targets: []Target{target("east", Active, 0, 3), target("west", Active, 0, 2)}},
			want:   []move{{Removing, 0}, {Removing, 0}},
			reason: "without a wanted cluster, no replica must be kept",
		},
		"scale down in one": {
			in:     Input{Divided: true, Targets: []Target{with(target("east", Active, 1, 5), func(r *Target) { r.Available = 0 })}},
			want:   []move{{Active, 1}},
			reason: "the controller of a single cluster removes unavailable Pods first",
		},
		"deadline": {
			in: Input{
				Divided: true, MaxSurge: 3, Deadline: time.Minute, ProceedAtDeadline: true, DesiredSince: t0, Now: t0.Add(time.Hour),
				Targets: []Target{target("east", Draining, 0, 3), with(target("west", Active, 3, 3), func(r *Target) { r.Available = 0 })},
			},
			want:   []move{{Draining, 0}, {Active, 3}},
			reason: "Proceed accepts that the replacement is not available",
		},
		"break first": {
			in:      Input{Divided: true, BreakBeforeMake: true, Targets: []Target{target("east", Active, 0, 2), target("west", None, 2, 0)}},
			want:    []move{{Draining, 0}, {Pending, 0}},
			blocked: "east must stop its replicas first: no replica may run in two clusters at a time",
			reason:  "west does not get the object while east may run it",
		},
		"break first, broken": {
			in: Input{Divided: true, BreakBeforeMake: true, Targets: []Target{
				with(target("east", Removing, 0, 0), func(r *Target) { r.Removed = true }), target("west", Pending, 2, 0),
			}},
			want:   []move{{None, 0}, {Active, 2}},
			reason: "west gets all replicas after the removal",
		},
		"whole": {
			in:      Input{Targets: []Target{target("east", Active, 0, 0), {Cluster: "west", Wanted: true, Reachable: true}}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "west is not ready (Active)",
			reason:  "a ConfigMap stays in east until west has it",
		},
		"whole, replaced": {
			in:     Input{Targets: []Target{target("east", Draining, 0, 0), with(target("west", Active, 0, 0), func(r *Target) { r.Wanted = true })}},
			want:   []move{{Removing, 0}, {Active, 0}},
			reason: "the removal is ordered when the replacement is ready",
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
			if out.Blocked.Message != tc.blocked {
				t.Errorf("%s: blocked %q, want %q", tc.reason, out.Blocked.Message, tc.blocked)
			}
		})
	}
}
