// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// An object that was deleted in a cluster can still leave that cluster.
func TestGoneCanLeave(t *testing.T) {
	t.Parallel()
	s := scopeOfWork(schema.GroupKind{Group: "batch", Kind: "Job"}, "now")
	s.Reports = map[string]scope.WorkReport{"east": {Gone: true, Counts: v1alpha1.ReplicaCounts{Total: 2, Available: 2}}}
	r := migrationTarget(s, v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetDraining, RequestedReplicas: new(int32(0))}, Decision{Divided: true}, 0)
	if !r.ReportCurrent || r.Total != 0 || r.Available != 0 {
		t.Errorf("migrationTarget: got %+v, want it current and empty", r)
	}
}

// An order to remove that is withdrawn leaves the cluster the replicas that it still runs.
func TestWithdrawnOrderKeepsReplicas(t *testing.T) {
	t.Parallel()
	s := scopeOfWork(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "now")
	s.Works["east"].Spec.Manifests = []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":10}}`)}}}
	t0 := v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetRemoving, RequestedReplicas: new(int32(0))}
	if r := migrationTarget(s, t0, Decision{Divided: true}, 0); r.Requested != 10 {
		t.Errorf("migrationTarget: got %d requested replicas, want the 10 of the Work", r.Requested)
	}
}

// A step counts what reports have said for long enough.
func TestReportsCountForStable(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	s := scopeOfWork(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "now")
	s.Reports = map[string]scope.WorkReport{"east": {Ready: true, Counts: v1alpha1.ReplicaCounts{Total: 5, Available: 5}}}
	history := stability.History{{At: at}, {At: at.Add(time.Minute), Available: 5, Ready: true}}
	for name, tc := range map[string]struct {
		reason    string
		until     time.Time
		available int32
		ready     bool
	}{
		"undated":  {"The cluster's API server may be dead since long ago.", time.Time{}, 0, false},
		"too soon": {"The replicas may fail right after they have become available.", at.Add(time.Minute + 9*time.Second), 0, false},
		"stable":   {"All reports of the last 10 s say so.", at.Add(time.Minute + 10*time.Second), 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := *s
			s.Observed = map[string]scope.Observed{"east": {Reports: history, Until: tc.until}}
			r := migrationTarget(&s, v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetActive, RequestedReplicas: new(int32(5))}, Decision{Divided: true}, 10*time.Second)
			if r.Available != tc.available || r.StableReady != tc.ready || r.Total != 5 || !r.Until.Equal(tc.until) {
				t.Errorf("%s\nmigrationTarget: got %+v, want %d available", tc.reason, r, tc.available)
			}
		})
	}
}

// A new decision forgets the roll-backs of the one before.
func TestRollbacksEndWithTheDecision(t *testing.T) {
	t.Parallel()
	a := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{
		Targets:  []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive, Replicas: new(int32(5))}},
		Decision: v1alpha1.Decision{Number: 1, Rollbacks: 3, LastChangeTime: &metav1.MicroTime{Time: time.Unix(1000, 0)}},
	}}
	for name, tc := range map[string]struct {
		reason string
		to     string
		want   int32
	}{
		"same":    {"the same move goes on", "east", 3},
		"another": {"another move has not failed yet", "west", 0},
	} {
		s := &scope.Scope{Assignment: a, Now: time.Unix(2000, 0)}
		next := NextAssignment(s, a, Decision{Replicas: map[string]int64{tc.to: 5}})
		if next.Spec.Decision.Rollbacks != tc.want {
			t.Errorf("%s: %s: got %d roll-backs, want %d", name, tc.reason, next.Spec.Decision.Rollbacks, tc.want)
		}
	}
}

// The Event says for how long reports must last, also where one report was enough so far.
func TestRolledBackNamesTheTime(t *testing.T) {
	t.Parallel()
	for stable, want := range map[time.Duration]string{0: "for 1s from now on", 10 * time.Second: "for 20s from now on", stability.MaxWindow: "for 10m0s from now on"} {
		if got := rolledBack(migration.Input{Stable: stable}, migration.Output{}); !strings.Contains(got.Message, want) {
			t.Errorf("move.stable %s: got %q, want %q", stable, got.Message, want)
		}
	}
}

// A new leader does not know yet what the clusters have reported: that is no reason to say that they do not report,
// and to write that at each change of the leader.
func TestNewLeaderKeepsMoveBlocked(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	reachable := &v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}}}
	target := func(cluster string, replicas, requested int32) v1alpha1.Target {
		return v1alpha1.Target{
			Cluster: v1alpha1.ClusterName(cluster), State: v1alpha1.TargetActive, Replicas: &replicas, RequestedReplicas: &requested,
			FallbackReplicas: new(int32(4)), LastTransitionTime: &metav1.MicroTime{Time: at},
		}
	}
	for name, tc := range map[string]struct {
		reason string
		since  time.Duration // that the leader has observed
		stored *metav1.Condition
		status metav1.ConditionStatus
		text   string
	}{
		"new":    {"The move was on its way.", time.Second, nil, metav1.ConditionFalse, ""},
		"stored": {"The last leader knew why.", time.Second, &metav1.Condition{Type: v1alpha1.ConditionMoveBlocked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStalled, Message: "known"}, metav1.ConditionTrue, "known"},
		"old":    {"Heartbeats must have come meanwhile.", time.Minute, nil, metav1.ConditionTrue, "until others replace them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scopeOfWork(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "now")
			s.Now, s.ObservedSince = at.Add(time.Hour), at.Add(time.Hour-tc.since)
			s.Clusters = map[string]*v1alpha1.Cluster{"east": reachable, "west": reachable}
			if tc.stored != nil {
				s.Assignment.Status.Conditions = []metav1.Condition{*tc.stored}
			}
			a := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: []v1alpha1.Target{target("east", 2, 4), target("west", 2, 2)}}}
			got := Migrate(s, a, Decision{Divided: true, Replicas: map[string]int64{"east": 2, "west": 2}}).MoveBlocked
			if got.Status != tc.status || !strings.Contains(got.Message, tc.text) {
				t.Errorf("%s\ngot %+v, want %s with %q", tc.reason, got, tc.status, tc.text)
			}
		})
	}
}

// A step reads the reports that it counts on again, and no others.
func TestClustersCounted(t *testing.T) {
	t.Parallel()
	target := func(cluster string, state v1alpha1.TargetState, requested int32) v1alpha1.Target {
		return v1alpha1.Target{Cluster: v1alpha1.ClusterName(cluster), State: state, RequestedReplicas: new(requested)}
	}
	east, west := target("east", v1alpha1.TargetDraining, 5), target("west", v1alpha1.TargetActive, 5)
	for name, tc := range map[string]struct {
		reason       string
		before, next []v1alpha1.Target
		want         string
	}{
		"rest":      {"Nothing changes.", []v1alpha1.Target{east, west}, []v1alpha1.Target{east, west}, ""},
		"grows":     {"More replicas rely on nothing.", []v1alpha1.Target{east}, []v1alpha1.Target{east, west}, ""},
		"shrinks":   {"The other replicas must be available.", []v1alpha1.Target{east, west}, []v1alpha1.Target{target("east", v1alpha1.TargetDraining, 4), west}, "map[east:true west:false]"},
		"removes":   {"The object must be ready elsewhere.", []v1alpha1.Target{east, west}, []v1alpha1.Target{target("east", v1alpha1.TargetRemoving, 0), west}, "map[west:false]"},
		"ordered":   {"The order was given before.", []v1alpha1.Target{target("east", v1alpha1.TargetRemoving, 0), west}, []v1alpha1.Target{target("east", v1alpha1.TargetRemoving, 0), west}, ""},
		"alone":     {"The cluster's own controller scales down.", []v1alpha1.Target{west}, []v1alpha1.Target{target("west", v1alpha1.TargetActive, 1)}, ""},
		"gone":      {"Nothing is removed from a cluster that is gone.", []v1alpha1.Target{east, west}, []v1alpha1.Target{west}, ""},
		"from both": {"Replicas of both count.", []v1alpha1.Target{target("east", v1alpha1.TargetActive, 5), west}, []v1alpha1.Target{target("east", v1alpha1.TargetActive, 3), west}, "map[east:true west:false]"},
	} {
		got := ClustersCounted(tc.before, tc.next)
		if text := fmt.Sprint(got); text != tc.want && (len(got) > 0 || tc.want != "") {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, text, tc.want)
		}
	}
}

// A move is not reported as blocked while its Pods may still be starting or stopping, or reports must last.
func TestBlockedIsReportedLate(t *testing.T) {
	t.Parallel()
	web := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{"terminationGracePeriodSeconds": int64(120), "containers": []any{map[string]any{"name": "web"}}}},
	}}}
	for name, tc := range map[string]struct {
		reason  string
		blocked migration.BlockedReason
		stable  time.Duration
		waited  time.Duration
		done    bool
		want    string // reason of the condition
		retry   time.Duration
	}{
		"just now":         {"The next step may follow at once.", migration.NotReady, 10 * time.Second, 0, false, v1alpha1.ReasonProgressing, 30 * time.Second},
		"a while":          {"The condition is computed again when the time is over.", migration.NotReady, 10 * time.Second, 29 * time.Second, false, v1alpha1.ReasonProgressing, time.Second},
		"too long":         {"The move has made no step for too long.", migration.NotReady, 10 * time.Second, 30 * time.Second, false, v1alpha1.ReasonStalled, 0},
		"goes on":          {"The move waits for nothing.", "", 10 * time.Second, time.Hour, false, v1alpha1.ReasonProgressing, 0},
		"done":             {"The move is complete.", "", 10 * time.Second, time.Hour, true, v1alpha1.ReasonAsExpected, 0},
		"reports last":     {"Reports must last for a minute.", migration.NotAvailable, time.Minute, time.Minute, false, v1alpha1.ReasonProgressing, 70 * time.Second},
		"stopping":         {"A Pod may take 120 s to stop.", migration.StillRunning, 0, 149 * time.Second, false, v1alpha1.ReasonProgressing, time.Second},
		"must stop":        {"A Pod may take 120 s to stop.", migration.MustStop, 0, 0, false, v1alpha1.ReasonProgressing, 150 * time.Second},
		"does not stop":    {"The Pods had their grace period.", migration.StillRunning, 0, 150 * time.Second, false, v1alpha1.ReasonStalled, 0},
		"stable has ended": {"Two reports could have come.", migration.NotAvailable, time.Minute, 130 * time.Second, false, v1alpha1.ReasonStalled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := blockedAfter(&scope.Scope{Object: web}, tc.blocked, tc.stable)
			c, retry := moveBlockedCondition(migration.Blocked{Reason: tc.blocked, Message: "west is not ready"}, tc.done, tc.waited, after)
			isBlocked := c.Status == metav1.ConditionTrue
			if c.Type != v1alpha1.ConditionMoveBlocked || isBlocked != (tc.want == v1alpha1.ReasonStalled) || c.Reason != tc.want || retry != tc.retry {
				t.Errorf("%s\nmoveBlockedCondition: got %+v, retry after %s, want %s after %s", tc.reason, c, retry, tc.want, tc.retry)
			}
		})
	}
}
