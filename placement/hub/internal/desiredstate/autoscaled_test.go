// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// The replicas of autoscalers count from the time at which the object leaves one of them until the move has ended, and
// never at rest: the hub would write each change of theirs.
func TestAutoscaledIsMoved(t *testing.T) {
	t.Parallel()
	active := func(cluster string, replicas, requested int32) v1alpha1.Target {
		return v1alpha1.Target{Cluster: v1alpha1.ClusterName(cluster), State: v1alpha1.TargetActive, Replicas: &replicas, RequestedReplicas: &requested}
	}
	leaving := active("east", 0, 15)
	leaving.State = v1alpha1.TargetDraining
	live := func(n int32) scope.WorkReport { return scope.WorkReport{Applied: true, AutoscaledReplicas: &n} }
	to := func(divided bool, replicas map[string]int64) Decision {
		return Decision{Divided: divided, Replicas: replicas}
	}
	for name, tc := range map[string]struct {
		reason   string
		noYield  bool
		replicas int64 // of the object
		wanted   int32 // stored
		targets  []v1alpha1.Target
		reports  map[string]scope.WorkReport
		plan     Decision // for what the object requests
		total    int64
		want     bool
	}{
		"rest": {
			"east keeps the object", false, 2, 0, []v1alpha1.Target{active("east", 2, 2)}, map[string]scope.WorkReport{"east": live(20)},
			to(true, map[string]int64{"east": 1, "west": 1}), 20, false,
		},
		"leaves": {
			"20 replicas leave, not 2", false, 2, 0, []v1alpha1.Target{active("east", 2, 2)}, map[string]scope.WorkReport{"east": live(20)},
			to(true, map[string]int64{"west": 2}), 20, true,
		},
		"share of 0": {
			"it would stop all 20", false, 1, 0, []v1alpha1.Target{active("east", 1, 1)}, map[string]scope.WorkReport{"east": live(20)},
			to(true, map[string]int64{"east": 0, "west": 1}), 20, true,
		},
		"whole": {
			"each cluster has all replicas", false, 2, 0, []v1alpha1.Target{active("east", 2, 2), active("west", 2, 2)},
			map[string]scope.WorkReport{"east": live(3), "west": live(20)}, to(false, map[string]int64{"east": 0}), 20, true,
		},
		"scaled to 0 by an autoscaler": {
			"nothing leaves", false, 2, 0, []v1alpha1.Target{active("east", 2, 2)}, map[string]scope.WorkReport{"east": live(0)},
			to(true, map[string]int64{"west": 2}), 0, false,
		},
		"scaled to 0 by a user": {
			"an order at the hub stops all", false, 0, 20, []v1alpha1.Target{active("east", 20, 20)}, map[string]scope.WorkReport{"east": live(20)},
			to(true, map[string]int64{"east": 0}), 0, false,
		},
		"no yield": {
			"the hub owns the field", true, 2, 0, []v1alpha1.Target{active("east", 2, 2)}, map[string]scope.WorkReport{"east": live(20)},
			to(true, map[string]int64{"west": 2}), 0, false,
		},
		"no autoscaler": {
			"it has never requested anything", false, 2, 0, []v1alpha1.Target{active("east", 2, 2)}, map[string]scope.WorkReport{"east": {Applied: true}},
			to(true, map[string]int64{"west": 2}), 0, false,
		},
		"under way": {
			"east still loses replicas", false, 2, 20, []v1alpha1.Target{leaving, active("west", 20, 20)},
			map[string]scope.WorkReport{"east": live(0), "west": live(20)}, to(true, map[string]int64{"west": 2}), 20, true,
		},
		"grows": {
			"east adds 5", false, 2, 20, []v1alpha1.Target{leaving, active("west", 20, 20)},
			map[string]scope.WorkReport{"east": live(20), "west": live(20)}, to(true, map[string]int64{"west": 2}), 25, true,
		},
		"ended": {
			"the autoscaler of west has its 20", false, 2, 20, []v1alpha1.Target{active("west", 20, 20)}, map[string]scope.WorkReport{"west": live(20)},
			to(true, map[string]int64{"west": 2}), 20, false,
		},
		"not handed over": {
			"an earlier agent owns the 20 and would take them back", false, 2, 20, []v1alpha1.Target{active("west", 20, 20)},
			map[string]scope.WorkReport{"west": {Applied: true}}, to(true, map[string]int64{"west": 2}), 20, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &policy.EffectivePolicy{Spec: v1alpha1.PlacementSpec{Replicas: v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDivide}}}
			if !tc.plan.Divided {
				p.Spec.Replicas.Mode = v1alpha1.ReplicasDuplicate
			}
			if !tc.noYield {
				p.Spec.Apply.Yield = []v1alpha1.FieldPath{"spec.replicas"}
			}
			s := &scope.Scope{Reports: tc.reports}
			current := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: tc.targets, Decision: v1alpha1.Decision{AutoscaledReplicas: tc.wanted}}}
			a := autoscaledOf(s, policy.PlanInput{Replicas: &tc.replicas}, p, current)
			if got := a.isMoved(s, tc.plan, current); got != tc.want || a.total != tc.total {
				t.Errorf("%s\ngot %t with %d replicas, want %t with %d", tc.reason, got, a.total, tc.want, tc.total)
			}
		})
	}
}

// A move that begins requests of each cluster what runs there, and its end forgets that.
func TestRecordAutoscaled(t *testing.T) {
	t.Parallel()
	next := v1alpha1.AssignmentSpec{Targets: []v1alpha1.Target{{Cluster: "east", RequestedReplicas: new(int32(2))}, {Cluster: "whole"}, {Cluster: "new"}}}
	d := Decision{AutoscaledReplicas: 20, AutoscaledIn: map[string]int64{"east": 20, "whole": 7}}
	recordAutoscaled(&next, d)
	want := []v1alpha1.Target{
		{Cluster: "east", RequestedReplicas: new(int32(20)), AutoscaledReplicas: new(int32(20))}, {Cluster: "whole", AutoscaledReplicas: new(int32(7))}, {Cluster: "new"},
	}
	if diff := cmp.Diff(want, next.Targets); diff != "" || next.Decision.AutoscaledReplicas != 20 {
		t.Errorf("begins: got %+v, -want +got\n%s", next.Decision, diff)
	}
	next.Targets[0].RequestedReplicas = new(int32(15))
	d.AutoscaledIn["east"] = 25
	recordAutoscaled(&next, d)
	if got := next.Targets[0]; *got.RequestedReplicas != 15 || *got.AutoscaledReplicas != 25 {
		t.Errorf("goes on: got %+v, want the step to stay, and the growth to be recorded", got)
	}
	recordAutoscaled(&next, Decision{})
	if next.Decision.AutoscaledReplicas != 0 || next.Targets[0].AutoscaledReplicas != nil || next.Targets[1].AutoscaledReplicas != nil {
		t.Errorf("ended: got %+v", next)
	}
}

// A move that replaces a lost cluster is over when the others run everything, however long the cluster is silent: their
// autoscalers get their own bounds back. When the cluster returns, what it had is no need of its own.
func TestAutoscaledOfLostCluster(t *testing.T) {
	t.Parallel()
	target := func(cluster string, state v1alpha1.TargetState, replicas, requested int32) v1alpha1.Target {
		return v1alpha1.Target{Cluster: v1alpha1.ClusterName(cluster), State: state, Replicas: &replicas, RequestedReplicas: &requested}
	}
	for name, tc := range map[string]struct {
		reason  string
		returns bool
		wanted  int32 // stored
		targets []v1alpha1.Target
		total   int64
		want    bool
	}{
		"replaced": {
			"West runs what east had, and may add and take away.", false, 20,
			[]v1alpha1.Target{target("east", v1alpha1.TargetLost, 0, 20), target("west", v1alpha1.TargetActive, 20, 20)}, 60, false,
		},
		"not replaced yet": {
			"West still grows.", false, 20,
			[]v1alpha1.Target{target("east", v1alpha1.TargetLost, 0, 20), target("west", v1alpha1.TargetActive, 20, 10)}, 70, true,
		},
		"silent after the last order": {
			"East has no replicas, and does not say whether it has removed the object.", false, 20,
			[]v1alpha1.Target{target("east", v1alpha1.TargetRemoving, 0, 0), target("west", v1alpha1.TargetActive, 20, 20)}, 60, false,
		},
		"removes": {
			"East is about to say that.", true, 20,
			[]v1alpha1.Target{target("east", v1alpha1.TargetRemoving, 0, 0), target("west", v1alpha1.TargetActive, 20, 20)}, 60, true,
		},
		"returns": {
			"What it runs leaves, and all of what west runs now is needed.", true, 0,
			[]v1alpha1.Target{target("east", v1alpha1.TargetLost, 0, 20), target("west", v1alpha1.TargetActive, 2, 2)}, 60, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := silentScope()
			west := &v1alpha1.Cluster{}
			west.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}
			s.Clusters["west"] = west
			if tc.returns {
				s.Clusters["east"].Status.Conditions = west.Status.Conditions
			}
			live := func(n int32) scope.WorkReport { return scope.WorkReport{Applied: true, AutoscaledReplicas: &n} }
			s.Reports = map[string]scope.WorkReport{"east": live(20), "west": live(60)}
			p := &policy.EffectivePolicy{Spec: v1alpha1.PlacementSpec{
				Replicas: v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDivide}, Apply: v1alpha1.ApplyPolicy{Yield: []v1alpha1.FieldPath{"spec.replicas"}},
			}}
			current := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: tc.targets, Decision: v1alpha1.Decision{AutoscaledReplicas: tc.wanted}}}
			in := policy.PlanInput{Replicas: new(int64(2)), Returned: map[string]bool{"east": tc.returns && tc.targets[0].State == v1alpha1.TargetLost}}
			a := autoscaledOf(s, in, p, current)
			if got := a.isMoved(s, Decision{Divided: true, Replicas: map[string]int64{"west": 2}}, current); got != tc.want || a.total != tc.total {
				t.Errorf("%s\ngot %t with %d replicas, want %t with %d", tc.reason, got, a.total, tc.want, tc.total)
			}
			if !a.active["west"] || a.active["east"] {
				t.Errorf("%s\nclusters that keep replicas: got %v, want west", tc.reason, a.active)
			}
			if tc.wanted == 0 {
				return
			}
			// Without a policy, and after a mistake in it, the stored decision stays in force.
			for _, d := range []Decision{
				storedDecision(s, current), {Mistake: &policy.Error{}, AutoscaledReplicas: storedDecision(s, current).AutoscaledReplicas},
			} {
				next := NextAssignment(s, current, d)
				if binds := next.Spec.Decision.AutoscaledReplicas > 0 && leastReplicas(next, &next.Spec.Targets[1]) != nil; binds != tc.want {
					t.Errorf("%s\nbinds the autoscaler of west by decision %+v: got %t", tc.reason, d, binds)
				}
			}
		})
	}
}

// Where each cluster has the whole object, a move scales only the cluster that is new, to what the largest one runs, and
// waits only for that one.
func TestAutoscaledWholeScalesNewClusters(t *testing.T) {
	t.Parallel()
	target := func(cluster string, state v1alpha1.TargetState, replicas int32, most *int32) v1alpha1.Target {
		return v1alpha1.Target{Cluster: v1alpha1.ClusterName(cluster), State: state, Replicas: &replicas, AutoscaledReplicas: most}
	}
	const active, draining = v1alpha1.TargetActive, v1alpha1.TargetDraining
	for name, tc := range map[string]struct {
		reason  string
		wanted  int32 // stored
		live    int32 // in east, which leaves
		targets []v1alpha1.Target
		room    map[string]int64
		want    map[string]int64
	}{
		"begins": {
			"West runs its 5, and north has no autoscaler.", 0, 30,
			[]v1alpha1.Target{target("east", active, 2, nil), target("west", active, 2, nil), target("north", active, 2, nil)}, nil,
			map[string]int64{"west": 5, "north": 2, "new": 30},
		},
		"goes on": {
			"It changes none of them.", 30, 30,
			[]v1alpha1.Target{target("east", draining, 0, new(int32(30))), target("west", active, 5, new(int32(5))), target("north", active, 2, new(int32(2))), target("new", active, 30, nil)}, nil,
			map[string]int64{"west": 5, "north": 2, "new": 30},
		},
		"grows": {
			"The new one follows.", 30, 40,
			[]v1alpha1.Target{target("east", draining, 0, new(int32(30))), target("west", active, 5, new(int32(5))), target("north", active, 2, new(int32(2))), target("new", active, 30, nil)}, nil,
			map[string]int64{"west": 5, "north": 2, "new": 40},
		},
		"grows beyond the room": {
			"A hostile cluster fills no other one.", 30, 2_000_000_000,
			[]v1alpha1.Target{target("east", draining, 0, new(int32(30))), target("west", active, 5, new(int32(5))), target("north", active, 2, new(int32(2))), target("new", active, 30, nil)},
			map[string]int64{"new": 32}, map[string]int64{"west": 5, "north": 2, "new": 32},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := func(n int32) scope.WorkReport {
				return scope.WorkReport{Applied: true, Ready: true, Current: true, AutoscaledReplicas: &n}
			}
			s := silentScope()
			s.Reports = map[string]scope.WorkReport{"east": live(tc.live), "west": live(5), "north": {Applied: true}, "new": live(3)}
			p := &policy.EffectivePolicy{Spec: v1alpha1.PlacementSpec{
				Replicas: v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDuplicate}, Apply: v1alpha1.ApplyPolicy{Yield: []v1alpha1.FieldPath{"spec.replicas"}},
			}}
			current := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: tc.targets, Decision: v1alpha1.Decision{AutoscaledReplicas: tc.wanted}}}
			in := policy.PlanInput{Replicas: new(int64(2)), Assigned: map[string]int64{}, Capacity: func(c string) (*int64, string) {
				if n, ok := tc.room[c]; ok {
					return &n, "its limit"
				}
				return nil, ""
			}}
			for _, t := range tc.targets {
				in.Assigned[string(t.Cluster)] = deref(t.Replicas)
			}
			a := autoscaledOf(s, in, p, current)
			in = a.planInput(in, current)
			d := Decision{Replicas: map[string]int64{}, AutoscaledReplicas: int32(a.total), AutoscaledIn: a.counts}
			for name := range tc.want {
				d.Replicas[name] = wholeReplicas(in, name)
			}
			if diff := cmp.Diff(tc.want, d.Replicas); diff != "" {
				t.Errorf("%s\n-want +got\n%s", tc.reason, diff)
			}
			next := NextAssignment(s, current, d)
			for i := range next.Spec.Targets {
				target := &next.Spec.Targets[i]
				isNew := target.Cluster == "new"
				if bound := leastReplicas(next, target) != nil; bound != isNew {
					t.Errorf("%s\n%s: binds the autoscaler: %t", tc.reason, target.Cluster, bound)
				}
				m := migration.Target{Wanted: true, Ready: true, ReportCurrent: true}
				setAutoscaled(&m, s, *target, d, nil)
				if waits := !m.Ready || !m.ReportCurrent; waits != isNew {
					t.Errorf("%s\n%s: the move waits for its autoscaler: %t", tc.reason, target.Cluster, waits)
				}
			}
			for i := range next.Spec.Targets { // nor does the end wait for an autoscaler in north
				next.Spec.Targets[i].State = active
			}
			if !isAutoscaledMoveOver(s, next) {
				t.Errorf("%s\nthe move is not over", tc.reason)
			}
		})
	}
}
