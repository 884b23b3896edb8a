// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// silentScope returns a Scope in which east has been silent for ten minutes.
func silentScope() *scope.Scope {
	now := time.Unix(100_000, 0)
	east := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	east.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHeartbeatLost}}
	return &scope.Scope{
		Now: now, Assignment: &v1alpha1.Assignment{}, Clusters: map[string]*v1alpha1.Cluster{"east": east}, Silence: policy.Silence{Silent: 1, All: 3},
		LossClocks: map[string]policy.LossClock{"east": {SilentSince: now.Add(-10 * time.Minute), ObservedSince: now.Add(-time.Hour)}},
	}
}

func TestLossOf(t *testing.T) {
	t.Parallel()
	reports := func(s *scope.Scope) { s.Clusters["east"].Status.Conditions[0].Status = metav1.ConditionTrue }
	declared := func(s *scope.Scope) { s.DeclaredLost = map[string]bool{"east": true} }
	many := func(s *scope.Scope) { s.Silence.Silent = 2 }
	newLeader := func(s *scope.Scope) {
		s.LossClocks["east"] = policy.LossClock{SilentSince: s.Now.Add(-10 * time.Minute), ObservedSince: s.Now}
	}
	const active, lost = v1alpha1.TargetActive, v1alpha1.TargetLost
	minutes := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Minute} }
	held := "2 of 3 clusters do not report, which is more than a third"
	for name, tc := range map[string]struct {
		reason string
		after  *metav1.Duration // assumeLostAfter
		state  v1alpha1.TargetState
		change []func(*scope.Scope)
		want   loss
	}{
		"reports":               {"It is there.", minutes(5), lost, []func(*scope.Scope){reports, declared}, loss{}},
		"silent":                {"It has been silent for long enough.", minutes(5), active, nil, loss{lost: true}},
		"not for long enough":   {"The hub decides again then.", minutes(15), active, nil, loss{after: 5 * time.Minute}},
		"no such policy":        {"It may run everything.", nil, active, nil, loss{}},
		"too many":              {"The hub may be the cause.", minutes(5), active, []func(*scope.Scope){many}, loss{held: held}},
		"too many, early":       {"There is nothing to say yet.", minutes(15), active, []func(*scope.Scope){many}, loss{after: 5 * time.Minute}},
		"new leader":            {"It has not seen how long.", minutes(5), active, []func(*scope.Scope){newLeader}, loss{after: 5 * time.Minute}},
		"new leader, replaced":  {"The former one has replaced it.", minutes(5), lost, []func(*scope.Scope){newLeader, many}, loss{lost: true, declared: true}},
		"replaced, no policy":   {"It was replaced.", nil, lost, nil, loss{lost: true, declared: true}},
		"replaced, and deleted": {"The Cluster is gone.", nil, lost, []func(*scope.Scope){func(s *scope.Scope) { s.Clusters = nil }}, loss{lost: true, declared: true}},
		"declared":              {"An admin knows.", nil, active, []func(*scope.Scope){declared, many}, loss{lost: true, declared: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := silentScope()
			for _, change := range tc.change {
				change(s)
			}
			p := &policy.EffectivePolicy{Spec: v1alpha1.PlacementSpec{Offline: v1alpha1.OfflinePolicy{AssumeLostAfter: tc.after}}}
			if got := lossOf(s, p, "east", tc.state); got != tc.want {
				t.Errorf("%s\ngot %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

// By time alone, nothing that must run in one cluster at a time is lost to a move: an annotation for another cluster
// would else start it there.
func TestAssumedLossKeepsWhatRunsInOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		mode     v1alpha1.MoveMode
		declared bool
		want     bool
	}{
		"make first":      {"Two may run.", v1alpha1.MakeBeforeBreak, false, true},
		"break first":     {"East may run it.", v1alpha1.BreakBeforeMake, false, false},
		"break, declared": {"An admin says that east does not.", v1alpha1.BreakBeforeMake, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := silentScope()
			s.DeclaredLost = map[string]bool{"east": tc.declared}
			p := &policy.EffectivePolicy{Spec: v1alpha1.PlacementSpec{
				Move: v1alpha1.MovePolicy{Mode: tc.mode}, Offline: v1alpha1.OfflinePolicy{AssumeLostAfter: &metav1.Duration{Duration: time.Second}},
			}}
			if m := migrationTarget(s, v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetActive}, Decision{Policy: p}, 0); m.Lost != tc.want {
				t.Errorf("%s\nlost: got %t, want %t", tc.reason, m.Lost, tc.want)
			}
		})
	}
}

// A declared cluster that had the order to stop is not waited for: also its Work and Cluster may go. The order stays, so
// that the object stops when the cluster returns, and a plan takes it for one.
func TestDeclaredLossEndsTheWaitForARemoval(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		state    v1alpha1.TargetState
		declared bool
		gone     bool
		want     []v1alpha1.Target // after the step
	}{
		"silent":         {"It may run.", v1alpha1.TargetRemoving, false, false, []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetRemoving}, {Cluster: "west", State: v1alpha1.TargetPending}}},
		"declared":       {"An admin says that it does not.", v1alpha1.TargetRemoving, true, false, []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetLost}, {Cluster: "west", State: v1alpha1.TargetActive}}},
		"declared, gone": {"The admin has deleted Cluster and namespace.", v1alpha1.TargetLost, false, true, []v1alpha1.Target{{Cluster: "west", State: v1alpha1.TargetActive}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := silentScope()
			west := s.Clusters["east"].DeepCopy()
			west.Name, west.Status.Conditions[0].Status = "west", metav1.ConditionTrue
			s.Clusters["west"] = west
			s.Key = kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, Namespace: "shop", Name: "queue"}
			s.Object = &unstructured.Unstructured{Object: map[string]any{"kind": "StatefulSet"}}
			s.DeclaredLost = map[string]bool{"east": tc.declared}
			work := &v1alpha1.Work{}
			work.Spec.Removal = &v1alpha1.Removal{}
			s.Works = map[string]*v1alpha1.Work{"east": work}
			if tc.gone {
				delete(s.Clusters, "east")
				s.Works, s.GoneWorks = nil, map[string]bool{"east": true}
			}
			a := &v1alpha1.Assignment{}
			a.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: tc.state}, {Cluster: "west", State: v1alpha1.TargetPending}}
			p := &policy.EffectivePolicy{Spec: v1alpha1.PlacementSpec{Move: v1alpha1.MovePolicy{Mode: v1alpha1.BreakBeforeMake}}}
			var got []v1alpha1.Target
			for _, target := range Migrate(s, a, Decision{Policy: p, Replicas: map[string]int64{"west": 0}}).Targets {
				got = append(got, v1alpha1.Target{Cluster: target.Cluster, State: target.State})
				if state := plannedState(s, target); target.Cluster == "east" && state != v1alpha1.TargetRemoving {
					t.Errorf("%s\na plan takes east for %s", tc.reason, state)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s\ngot %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

// A Job counts as started in a lost cluster until an admin has declared that; one that has finished always does. When
// the cluster returns, the Job there is the one that goes.
func TestStartedInLostCluster(t *testing.T) {
	t.Parallel()
	target := v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetActive}
	for name, tc := range map[string]struct {
		reason   string
		change   func(*v1alpha1.Target)
		declared bool
		finished bool // by the status at the hub
		reported bool // by the cluster's last report
		want     string
	}{
		"silent":             {"It may run.", func(*v1alpha1.Target) {}, false, false, false, "east"},
		"declared":           {"It runs no more, though its status says that it has started.", func(*v1alpha1.Target) {}, true, false, false, ""},
		"replaced":           {"It runs elsewhere.", func(t *v1alpha1.Target) { t.State = v1alpha1.TargetLost }, false, false, false, ""},
		"returned":           {"So it does now.", func(t *v1alpha1.Target) { t.State, t.Returned = v1alpha1.TargetDraining, true }, false, false, false, ""},
		"declared, finished": {"It must not run again.", func(*v1alpha1.Target) {}, true, true, false, "east"},
		"declared, reported": {"The hub has not stored the end, or never does (status.mode None).", func(*v1alpha1.Target) {}, true, false, true, "east"},
		"returned, finished": {"It runs elsewhere since.", func(t *v1alpha1.Target) { t.State, t.Returned = v1alpha1.TargetDraining, true }, false, false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := jobScope(jobWork(reportsJob("there", metav1.ConditionTrue, v1alpha1.ReasonAsExpected)))
			s.DeclaredLost = map[string]bool{"east": tc.declared}
			status := map[string]any{"startTime": "2026-01-01T00:00:00Z"}
			ended := []any{map[string]any{"type": "Complete", "status": "True"}}
			if tc.finished {
				status["conditions"] = ended
			}
			if tc.reported {
				s.Reports["east"] = scope.WorkReport{Status: map[string]any{"conditions": ended}}
			}
			s.Object.Object["status"] = status
			at := target
			tc.change(&at)
			a := &v1alpha1.Assignment{}
			a.Spec.Targets = []v1alpha1.Target{at}
			var got []string
			for name := range startedIn(s, a) {
				got = append(got, name)
			}
			if slices.Sort(got); strings.Join(got, " ") != tc.want {
				t.Errorf("%s\ngot %v, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// The last report of a lost cluster counts nowhere: not in the status, and not in the row of the Assignment. A Job that
// starts again keeps its status until its new cluster reports.
func TestLostReportDoesNotCount(t *testing.T) {
	t.Parallel()
	s := silentScope()
	s.Key = kinds.Key{GroupKind: schema.GroupKind{Group: "batch", Kind: "Job"}, Namespace: "shop", Name: "sums"}
	s.Kind = kinds.Kind{HasStatus: true}
	s.Object = &unstructured.Unstructured{Object: map[string]any{"kind": "Job", "status": map[string]any{"startTime": "2026-01-01T00:00:00Z"}}}
	s.Works = map[string]*v1alpha1.Work{"east": jobWork(reportsJob("there", metav1.ConditionTrue, v1alpha1.ReasonAsExpected))}
	s.Reports = map[string]scope.WorkReport{"east": {Applied: true, Ready: true, Status: map[string]any{"active": int64(1)}}}
	a := &v1alpha1.Assignment{}
	a.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetLost}}
	st := AggregateStatus(s, a, nil)
	row := st.Assignment.Clusters[0]
	if row.Applied || row.Ready || row.Message == "" || len(st.reports) > 0 || st.Assignment.Summary != "east (Lost)" {
		t.Errorf("got %+v, %q and %d reports", row, st.Assignment.Summary, len(st.reports))
	}
	if fields, err := st.ObjectStatus(s, s.Object, Decision{}); err != nil || fields != nil {
		t.Errorf("status of a Job that starts again: got %v, %v", fields, err)
	}
}
