// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// request is what a step requests of a cluster.
type request struct {
	State               State
	Requested, Fallback int32
}

func requests(out Output) (all []request) {
	for _, m := range out.Transitions {
		all = append(all, request{m.State, m.Requested, m.Fallback})
	}
	return all
}

// at sets the time up to which a cluster has reported, in seconds after t0.
func at(seconds int) func(*Target) {
	return func(r *Target) { r.Until = t0.Add(time.Duration(seconds) * time.Second) }
}

// changed sets when the request of a cluster changed last, in seconds after t0.
func changed(seconds int) func(*Target) {
	return func(r *Target) { r.Since = t0.Add(time.Duration(seconds) * time.Second) }
}

// only sets how many replicas have been available for long enough, and how many at most.
func only(available, atMost int32) func(*Target) {
	return func(r *Target) { r.Available, r.AtMost = available, atMost }
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		targets     []Target
		unavailable int32
		surge       int32
		deadline    bool // has passed, and the move proceeds
		want        []request
		rolledBack  int32
		blocked     BlockedReason
		cluster     string
		reason      string
	}{
		// Limits of a step.
		"a quarter": {
			targets: []Target{target("east", Draining, 0, 12), target("west", Active, 12, 12)},
			want:    []request{{Draining, 9, 12}, {Active, 12, 0}},
			reason:  "one step removes a quarter of the desired replicas",
		},
		"at least one": {
			targets: []Target{target("east", Draining, 0, 3), target("west", Active, 3, 3)},
			want:    []request{{Draining, 2, 3}, {Active, 3, 0}},
			reason:  "a quarter of 3 is none",
		},
		"in all clusters together": {
			targets: []Target{target("a", Draining, 0, 4), target("b", Draining, 0, 4), target("west", Active, 8, 8)},
			want:    []request{{Draining, 2, 4}, {Draining, 4, 4}, {Active, 8, 0}},
			reason:  "a step removes 2 of 8, not 2 of each cluster",
		},
		"as many as may be unavailable": {
			targets: []Target{target("east", Draining, 0, 12), target("west", Active, 12, 12)}, unavailable: 5,
			want:   []request{{Draining, 7, 12}, {Active, 12, 0}},
			reason: "the policy accepts that 5 fail at once",
		},
		"crashed": {
			targets: []Target{with(target("east", Draining, 0, 12), only(4, 4)), target("west", Active, 12, 12)},
			want:    []request{{Draining, 1, 4}, {Active, 12, 0}},
			reason:  "replicas that are not available do not count for the limit: 8, and a quarter of 12",
		},
		"unknown": {
			targets: []Target{with(target("east", Draining, 0, 12), unknown), target("west", Active, 12, 12)},
			want:    []request{{Draining, 9, 12}, {Active, 12, 0}},
			reason:  "east's replicas may be available",
		},
		"new division": {
			targets: []Target{with(target("east", Active, 2, 8), fallback(8)), target("west", Active, 8, 8)},
			want:    []request{{Active, 6, 8}, {Active, 8, 0}},
			reason:  "a cluster that keeps some of its replicas also loses a quarter of all at a time",
		},
		"new division begins": {
			targets: []Target{target("east", Active, 2, 8), target("west", Active, 8, 2)}, surge: 8,
			want:    []request{{Active, 8, 8}, {Active, 8, 0}},
			blocked: NotAvailable, cluster: "west",
			reason: "the fallback is noted when the others gain, because later it looks like a scale-down",
		},
		"scale-down": {
			targets: []Target{target("east", Active, 2, 10), target("west", Active, 2, 10)},
			want:    []request{{Active, 2, 0}, {Active, 2, 0}},
			reason:  "a user who asks for fewer replicas gets that at once",
		},
		"scale-down, crashed": {
			targets: []Target{with(target("east", Active, 3, 4), crashing), target("west", Active, 3, 4)},
			want:    []request{{Active, 3, 0}, {Active, 4, 0}},
			blocked: NotAvailable, cluster: "east",
			reason: "the available replica in west serves until east's do; the crashed one goes",
		},
		"scale-down, all crashed": {
			targets: []Target{with(target("east", Active, 3, 4), crashing), with(target("west", Active, 3, 4), crashing)},
			want:    []request{{Active, 3, 0}, {Active, 3, 0}},
			reason:  "replicas that are not available need no replacement",
		},
		"scale-down, much": {
			targets: []Target{with(target("east", Active, 1, 50), unknown), target("west", Active, 1, 50)},
			want:    []request{{Active, 1, 0}, {Active, 2, 0}},
			blocked: NotAvailable, cluster: "east",
			reason: "2 are needed, and 2 are available for certain",
		},
		"scale-down, nothing known": {
			targets: []Target{with(target("east", Active, 3, 4), unknown), with(target("west", Active, 3, 4), unknown)},
			want:    []request{{Active, 4, 0}, {Active, 4, 0}},
			blocked: NotAvailable, cluster: "east",
			reason: "a new leader waits until the reports have lasted",
		},

		// What counts.
		"not reported since the last step": {
			targets: []Target{with(target("east", Draining, 0, 9), fallback(12), changed(30)), target("west", Active, 12, 12)},
			want:    []request{{Draining, 9, 12}, {Active, 12, 0}},
			blocked: NotReported, cluster: "west",
			reason: "west may have failed under the load that east has given up",
		},
		"reported since the last step": {
			targets: []Target{with(target("east", Draining, 0, 9), fallback(12), changed(29)), target("west", Active, 12, 12)},
			want:    []request{{Draining, 6, 12}, {Active, 12, 0}},
			reason:  "the next quarter",
		},
		"another report is missing": {
			targets: []Target{
				with(target("a", Draining, 0, 4), fallback(8), changed(30)),
				with(target("b", Active, 4, 4), at(30)), with(target("c", Active, 8, 8), at(31)),
			},
			surge: 12, want: []request{{Draining, 4, 8}, {Active, 4, 0}, {Active, 8, 0}},
			blocked: NotReported, cluster: "b",
			reason: "c alone has 8 of 12",
		},
		"an earlier request": {
			targets: []Target{target("east", Draining, 0, 4), with(target("west", Active, 4, 4), silent)},
			want:    []request{{Draining, 4, 4}, {Active, 4, 0}},
			blocked: NotReported, cluster: "west",
			reason: "fewer may have been requested of west when it reported",
		},
		"for a moment": {
			targets: []Target{target("east", Draining, 0, 4), with(target("west", Active, 4, 4), only(0, 4))},
			want:    []request{{Draining, 4, 4}, {Active, 4, 0}},
			blocked: NotAvailable, cluster: "west",
			reason: "west's replicas have not been available for long enough",
		},
		"fallback stays": {
			targets: []Target{with(target("east", Draining, 0, 0), fallback(4)), with(target("west", Active, 4, 4), only(2, 4))},
			want:    []request{{Draining, 0, 4}, {Active, 4, 0}},
			blocked: NotAvailable, cluster: "west",
			reason: "east does not lose the object while west may need its replicas again",
		},
		"fallback goes": {
			targets: []Target{with(target("east", Draining, 0, 0), fallback(4)), target("west", Active, 4, 4)},
			want:    []request{{Removing, 0, 0}, {Active, 4, 0}},
			reason:  "west has replaced east",
		},
		"crashed object leaves": {
			targets: []Target{target("east", Draining, 0, 0), with(target("west", Active, 4, 4), crashing)},
			want:    []request{{Removing, 0, 0}, {Active, 4, 0}},
			reason:  "east had nothing that was available: there is nothing to give back",
		},

		// Roll-back.
		"replacement fails": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(8)), with(target("west", Active, 8, 8), only(2, 3))},
			want:    []request{{Draining, 5, 8}, {Active, 8, 0}}, rolledBack: 2,
			blocked: NotAvailable, cluster: "west",
			reason: "of 8 needed, 3 run in west and 3 in east",
		},
		"replacement fails while it grows": {
			targets: []Target{with(target("east", Draining, 0, 1), fallback(4)), with(target("west", Active, 4, 2), crashing)}, surge: 1,
			want: []request{{Draining, 4, 4}, {Active, 2, 0}}, rolledBack: 3,
			blocked: NotAvailable, cluster: "west",
			reason: "what is given back leaves no room for more in west",
		},
		"replacement may run": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(8)), with(target("west", Active, 8, 8), unknown)},
			want:    []request{{Draining, 3, 8}, {Active, 8, 0}},
			blocked: NotAvailable, cluster: "west",
			reason: "no two reports say that replicas fail",
		},
		"replacement is new": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(8)), with(target("west", Active, 8, 8), only(0, 0), changed(25))},
			want:    []request{{Draining, 3, 8}, {Active, 8, 0}},
			blocked: NotAvailable, cluster: "west",
			reason: "west's replicas have been requested for 5 s: they may start",
		},
		"replacement fails, no more than before": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(4)), with(target("west", Active, 8, 8), crashing)},
			want:    []request{{Draining, 4, 4}, {Active, 8, 0}}, rolledBack: 1,
			blocked: NotAvailable, cluster: "west",
			reason: "east had 4",
		},
		"given back, and starting": {
			targets: []Target{with(target("east", Draining, 0, 8), fallback(8), only(3, 3)), with(target("west", Active, 8, 8), crashing)},
			want:    []request{{Draining, 8, 8}, {Active, 8, 0}},
			blocked: NotAvailable, cluster: "west",
			reason: "replicas that were given back need time to start",
		},
		"given back, and the receiver changes": {
			targets: []Target{
				with(target("east", Draining, 0, 8), fallback(8), only(3, 3)), with(target("west", Draining, 0, 8), crashing), target("x", None, 8, 0),
			},
			surge: 1, want: []request{{Draining, 8, 8}, {Draining, 0, 0}, {Active, 6, 0}},
			blocked: NotAvailable, cluster: "x",
			reason: "what does not run in a cluster that is to lose it takes no room",
		},
		"replacement is unreachable": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(8)), with(target("west", Active, 8, 8), unreachable)},
			want:    []request{{Draining, 3, 8}, {Active, 8, 0}},
			blocked: Unreachable, cluster: "west",
			reason: "unreachable is not lost",
		},
		"replacement is lost": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(8)), with(target("west", Active, 8, 8), lost)},
			want:    []request{{Draining, 8, 8}, {Active, 8, 0}}, rolledBack: 5,
			blocked: Unreachable, cluster: "west",
			reason: "nothing of a lost cluster counts",
		},
		"fallback is unreachable": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(8), unreachable), with(target("west", Active, 8, 8), crashing)},
			want:    []request{{Draining, 3, 8}, {Active, 8, 0}},
			blocked: Unreachable, cluster: "east",
			reason: "east would start replicas at an unknown time",
		},
		"new division fails": {
			targets: []Target{with(target("east", Active, 2, 4), fallback(8)), with(target("west", Active, 6, 6), crashing)},
			want:    []request{{Active, 8, 8}, {Active, 6, 0}}, rolledBack: 4,
			blocked: NotAvailable, cluster: "west",
			reason: "a cluster that keeps some of its replicas gets the others back, too",
		},
		"fails after the deadline": {
			targets: []Target{with(target("east", Draining, 0, 3), fallback(8)), with(target("west", Active, 8, 8), crashing)}, deadline: true,
			want:   []request{{Draining, 0, 8}, {Active, 8, 0}},
			reason: "Proceed accepts that the replacement is not available",
		},
		"returns by decision": {
			targets: []Target{with(target("east", Active, 8, 3), fallback(8)), target("west", Draining, 0, 8)}, surge: 8,
			want:    []request{{Active, 8, 0}, {Draining, 6, 8}},
			blocked: NotAvailable, cluster: "east",
			reason: "east is to have 8 again, which needs no fallback",
		},
		"division is done": {
			targets: []Target{with(target("east", Active, 2, 2), fallback(8)), target("west", Active, 6, 6)},
			want:    []request{{Active, 2, 0}, {Active, 6, 0}},
			reason:  "a later scale-down is none of this move",
		},

		// Lost clusters, and those whose drain proceeds.
		"lost, within the surge": {
			targets: []Target{with(target("east", Draining, 0, 8), lost), with(target("west", Active, 8, 2), only(2, 2))}, surge: 2,
			want:   []request{{Lost, 8, 0}, {Active, 8, 0}},
			reason: "what is lost takes no room; it gets no order, and blocks nothing",
		},
		"lost, replaced": {
			targets: []Target{with(target("east", Draining, 0, 8), lost), target("west", Active, 8, 8)}, deadline: true,
			want:   []request{{Lost, 8, 0}, {Active, 8, 0}},
			reason: "an order that waits for east could not be withdrawn",
		},
		"drain proceeds": {
			targets: []Target{
				target("a", Draining, 0, 4), with(target("b", Draining, 0, 4), proceed),
				with(target("west", Active, 8, 8), crashing),
			},
			want:    []request{{Draining, 4, 4}, {Draining, 0, 4}, {Active, 8, 0}},
			blocked: NotAvailable, cluster: "west",
			reason: "only the cluster whose drain has passed its deadline loses its replicas",
		},
		"drain proceeds, scale-down": {
			targets: []Target{with(target("a", Draining, 0, 4), proceed), with(target("b", Active, 1, 3), unknown)},
			want:    []request{{Draining, 0, 4}, {Active, 3, 0}},
			blocked: NotAvailable, cluster: "b",
			reason: "b is not the only cluster yet: which of its replicas are available is unknown",
		},
		"drain proceeds, replacement fails": {
			targets: []Target{
				with(target("a", Draining, 0, 1), fallback(4), proceed), with(target("b", Draining, 0, 1), fallback(4)),
				with(target("west", Active, 4, 4), crashing),
			},
			want: []request{{Draining, 0, 4}, {Draining, 3, 4}, {Active, 4, 0}}, rolledBack: 2,
			blocked: NotAvailable, cluster: "west",
			reason: "a cluster whose drain proceeds gets nothing back, another one does",
		},
		"withdrawn": {
			targets: []Target{with(target("east", Removing, 5, 10)), target("west", None, 5, 0)}, surge: 5,
			want:    []request{{Active, 10, 10}, {Active, 5, 0}},
			blocked: NotAvailable, cluster: "east",
			reason: "a withdrawn order leaves east's replicas as they are, until west has its share",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := Step(Input{
				Targets: tc.targets, Divided: true, MaxSurge: tc.surge, MaxUnavailable: tc.unavailable, Stable: 10 * time.Second,
				Deadline: time.Second, DesiredSince: t0, ProceedAtDeadline: tc.deadline, Now: t0.Add(time.Minute), Settle: time.Second,
			})
			if diff := cmp.Diff(tc.want, requests(out)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if out.RolledBack != tc.rolledBack {
				t.Errorf("%s: %d are given back, want %d", tc.reason, out.RolledBack, tc.rolledBack)
			}
			if out.Blocked.Reason != tc.blocked || out.Blocked.Cluster != tc.cluster {
				t.Errorf("%s: blocked %+v, want %s %s", tc.reason, out.Blocked, tc.blocked, tc.cluster)
			}
		})
	}
}

func TestFallbacksEndWithTheMove(t *testing.T) {
	t.Parallel()
	out := Step(Input{Divided: true, Now: t0, Targets: []Target{
		with(target("east", Draining, 0, 8), lost, fallback(math.MaxInt32)), with(target("west", Active, 8, 8), fallback(9)),
	}})
	if want := []request{{Lost, 8, 0}, {Active, 8, 0}}; out.Done || !cmp.Equal(want, requests(out)) {
		t.Errorf("%+v: a move is not done while a lost cluster has the object, and it has no fallback any more", out)
	}
}
