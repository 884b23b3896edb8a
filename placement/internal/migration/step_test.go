// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Unix(1000, 0)

// target returns a target with all requested replicas available for long enough.
func target(cluster string, state State, desired, requested int32) Target {
	return Target{
		Cluster: cluster, Wanted: desired > 0, Desired: desired, State: state, Requested: requested, Since: t0,
		Reachable: true, ReportCurrent: state == Active || state == Draining, Ready: true, StableReady: true,
		Available: requested, AtMost: requested, Total: requested, Until: t0.Add(30 * time.Second),
	}
}

func with(t Target, changes ...func(*Target)) Target {
	for _, change := range changes {
		change(&t)
	}
	return t
}

func wanted(r *Target)      { r.Wanted = true }
func unreachable(r *Target) { r.Reachable = false }
func removed(r *Target)     { r.Removed = true }

// lost is assumed lost: nothing of it counts.
func lost(r *Target) { r.Reachable, r.Lost = false, true }

// proceed is drained, and the drain's deadline has passed.
func proceed(r *Target) { r.Proceed = true }

// silent has not reported since its replicas were last requested.
func silent(r *Target) { r.ReportCurrent = false }

// crashing has no available replica, and has had none for long enough.
func crashing(r *Target) { r.Ready, r.StableReady, r.Available, r.AtMost = false, false, 0, 0 }

// unknown has not reported for long enough, as after a change of the leader.
func unknown(r *Target) { r.StableReady, r.Available, r.AtMost = false, 0, math.MaxInt32 }

// fallback has lost some of so many replicas in this move.
func fallback(n int32) func(*Target) {
	return func(r *Target) { r.Fallback = n }
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
			blocked: "3 replicas stay in east until others replace them: 3 are available, and 3 are needed",
			reason:  "west scales up before east scales down",
		},
		"small surge": {
			in:      Input{Divided: true, MaxSurge: 1, Targets: []Target{target("east", Active, 0, 3), target("west", None, 3, 0)}},
			want:    []move{{Draining, 3}, {Active, 1}},
			blocked: "3 replicas stay in east until others replace them: 3 are available, and 3 are needed",
			reason:  "at most the desired replicas plus the surge are requested",
		},
		"some are available": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				target("east", Draining, 0, 3), with(target("west", Active, 3, 3), func(r *Target) { r.Available = 1 }),
			}},
			want:    []move{{Draining, 2}, {Active, 3}},
			blocked: "2 replicas stay in east until others replace them: 3 are available, and 3 are needed",
			reason:  "east scales down by the surplus of available replicas",
		},
		"one may be unavailable": {
			in: Input{Divided: true, MaxSurge: 0, MaxUnavailable: 1, Targets: []Target{
				target("east", Draining, 0, 3), target("west", None, 3, 0),
			}},
			want:    []move{{Draining, 2}, {Pending, 0}},
			blocked: "2 replicas stay in east until others replace them: 2 are available, and 2 are needed",
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
				with(target("east", Removing, 0, 0), removed), target("west", Active, 3, 3),
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
			in:      Input{Targets: []Target{with(target("east", Removing, 0, 0), wanted), target("west", Active, 0, 0)}},
			want:    []move{{Active, 0}, {Draining, 0}},
			blocked: "east has not reported on the object as it was last sent",
			reason:  "the other cluster stays until the object is ready again",
		},
		"not in the inventory": {
			in: Input{Targets: []Target{
				with(target("east", Draining, 0, 0), func(r *Target) { r.NotInInventory, r.Reachable = true, false }),
				with(target("west", Active, 0, 0), wanted),
			}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "east is not in the inventory: the object stays there",
			reason:  "a Cluster that is created again must not remove objects",
		},
		"unreachable": {
			in: Input{Divided: true, MaxSurge: 3, Targets: []Target{
				with(target("east", Draining, 0, 3), unreachable), target("west", Active, 3, 3),
			}},
			want:    []move{{Draining, 3}, {Active, 3}},
			blocked: "east cannot be reached: its 3 replicas stay as they are",
			reason:  "an unreachable cluster may run the object, and would scale down at an unknown time",
		},
		"unreachable, without replicas": {
			in: Input{Targets: []Target{
				with(target("east", Draining, 0, 0), unreachable),
				with(target("west", Active, 0, 0), wanted),
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
			blocked: "2 replicas stay in east until others replace them: 2 are available, and 2 are needed; west gets replicas when a policy selects the object again",
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
				with(target("east", Removing, 0, 0), removed), target("west", Pending, 2, 0),
			}},
			want:   []move{{None, 0}, {Active, 2}},
			reason: "west gets all replicas after the removal",
		},
		"whole": {
			in:      Input{Targets: []Target{target("east", Active, 0, 0), {Cluster: "west", Wanted: true, Reachable: true}}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "west has not reported on the object as it was last sent",
			reason:  "a ConfigMap stays in east until west has it",
		},
		"whole, replaced": {
			in:     Input{Targets: []Target{target("east", Draining, 0, 0), with(target("west", Active, 0, 0), wanted)}},
			want:   []move{{Removing, 0}, {Active, 0}},
			reason: "the removal is ordered when the replacement is ready",
		},
		"still running": {
			in:      Input{Divided: true, Targets: []Target{with(target("east", Draining, 0, 0), func(r *Target) { r.Total = 2 }), target("west", Active, 3, 3)}},
			want:    []move{{Draining, 0}, {Active, 3}},
			blocked: "east still runs replicas: 2",
			reason:  "the order to remove would end Pods that are still ending",
		},
		"replicas unknown": {
			in:      Input{Divided: true, Targets: []Target{with(target("east", Draining, 0, 0), silent), target("west", Active, 3, 3)}},
			want:    []move{{Draining, 0}, {Active, 3}},
			blocked: "east has not reported that it runs 0 replicas, as requested",
			reason:  "a report of an earlier request says nothing of this one",
		},
		"whole, ready for a moment": {
			in: Input{Stable: 10 * time.Second, Targets: []Target{
				target("east", Draining, 0, 0), with(target("west", Active, 0, 0), wanted, func(r *Target) { r.StableReady = false }),
			}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "the object has not been ready in west for 10s",
			reason:  "one report may be wrong a second later",
		},
		"whole, not ready": {
			in:      Input{Targets: []Target{target("east", Draining, 0, 0), with(target("west", Active, 0, 0), wanted, crashing)}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "the object is not ready in west",
			reason:  "the message names what is missing",
		},
		"whole, not reported": {
			in:      Input{Targets: []Target{target("east", Draining, 0, 0), with(target("west", Active, 0, 0), wanted, silent)}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "west has not reported on the object as it was last sent",
			reason:  "the message names what is missing",
		},
		"whole, not reachable": {
			in:      Input{Targets: []Target{target("east", Draining, 0, 0), with(target("west", Active, 0, 0), wanted, unreachable)}},
			want:    []move{{Draining, 0}, {Active, 0}},
			blocked: "west cannot be reached: whether the object is ready there is unknown",
			reason:  "the message names what is missing",
		},
		"whole, no policy": {
			in:      Input{NoPolicy: true, Targets: []Target{target("east", Draining, 0, 0), with(target("west", Pending, 0, 0), wanted)}},
			want:    []move{{Draining, 0}, {Pending, 0}},
			blocked: "west gets the object when a policy selects it again",
			reason:  "the message names what is missing",
		},
		"whole, wanted again": {
			in:     Input{Targets: []Target{with(target("east", Draining, 0, 0), wanted), target("west", Active, 0, 0)}, Settle: time.Minute},
			want:   []move{{Active, 0}, {Draining, 0}},
			reason: "east has had the object all the time: the move back waits for nothing but Settle",
		},
		"whole, lost": {
			in:     Input{Targets: []Target{with(target("east", Active, 0, 0), lost), with(target("west", Active, 0, 0), wanted)}},
			want:   []move{{Lost, 0}, {Active, 0}},
			reason: "a lost cluster gets no order, and blocks nothing",
		},
		"whole, a drain proceeds": {
			in: Input{Targets: []Target{
				target("a", Draining, 0, 0), with(target("b", Draining, 0, 0), proceed), with(target("west", Active, 0, 0), wanted, crashing),
			}},
			want:    []move{{Draining, 0}, {Removing, 0}, {Active, 0}},
			blocked: "the object is not ready in west",
			reason:  "only the cluster whose drain has passed its deadline loses the object",
		},
		"break first, source is unreachable": {
			in: Input{Divided: true, BreakBeforeMake: true, Targets: []Target{
				with(target("east", Active, 0, 2), unreachable), target("west", None, 2, 0),
			}},
			want:    []move{{Draining, 2}, {Pending, 0}},
			blocked: "east cannot be reached: the object stays there",
			reason:  "east would scale down at an unknown later time",
		},
		"break first, source is lost": {
			in:     Input{BreakBeforeMake: true, Targets: []Target{with(target("east", Draining, 0, 0), lost), with(target("west", Pending, 0, 0), wanted)}},
			want:   []move{{Lost, 0}, {Active, 0}},
			reason: "an admin says that the cluster runs nothing any more",
		},
		"break first, a drain proceeds": {
			in: Input{BreakBeforeMake: true, Targets: []Target{
				target("a", Draining, 0, 0), with(target("b", Draining, 0, 0), proceed), with(target("west", Pending, 0, 0), wanted, unreachable),
			}},
			want:    []move{{Draining, 0}, {Removing, 0}, {Pending, 0}},
			blocked: "west cannot be reached: the object stays in its present clusters",
			reason:  "the other one keeps the object until west can have it",
		},
		"break first, not reported": {
			in: Input{Divided: true, BreakBeforeMake: true, Targets: []Target{
				with(target("east", Active, 1, 1), silent, func(r *Target) { r.Total = 0 }), with(target("west", Active, 2, 1), silent),
			}},
			want:    []move{{Active, 1}, {Active, 1}},
			blocked: "west has not reported that it runs no more than the requested replicas: none may run in two clusters at a time",
			reason:  "a cluster may run what it was asked for before, and has not reported",
		},
		"order, not in the inventory": {
			in: Input{Divided: true, ProceedAtDeadline: true, Deadline: time.Second, DesiredSince: t0, Now: t0.Add(time.Hour), Targets: []Target{
				with(target("east", Active, 0, 3), func(r *Target) { r.NotInInventory, r.Reachable = true, false }), target("west", Active, 3, 3),
			}},
			want:    []move{{Draining, 3}, {Active, 3}},
			blocked: "east is not in the inventory: its 3 replicas stay as they are",
			reason:  "also after the deadline",
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
