// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// jobScope returns a Scope of a Job whose Work for east is w; nil: there is none.
func jobScope(w *v1alpha1.Work) *scope.Scope {
	gk := schema.GroupKind{Group: "batch", Kind: "Job"}
	s := &scope.Scope{
		Key: kinds.Key{GroupKind: gk, Namespace: "shop", Name: "sums"}, Object: &unstructured.Unstructured{},
		Assignment: &v1alpha1.Assignment{}, Works: map[string]*v1alpha1.Work{}, Reports: map[string]scope.WorkReport{},
	}
	s.Object.SetGroupVersionKind(gk.WithVersion("v1"))
	s.Object.SetUID("present")
	s.Assignment.Spec.Object.UID = "present"
	if w != nil {
		s.Works["east"], s.Reports["east"] = w, scope.ReportOf(gk, w)
	}
	return s
}

// jobWork returns a Work of revision 2 with a report.
func jobWork(change func(*v1alpha1.Work)) *v1alpha1.Work {
	w := &v1alpha1.Work{}
	w.Spec.Source = v1alpha1.ObjectReference{Group: "batch", Version: "v1", Kind: "Job", Namespace: "shop", Name: "sums", UID: "present"}
	w.Spec.Revision, w.Status.Revision = 2, 2
	change(w)
	return w
}

// reportsJob sets the report on the object of a Work.
func reportsJob(uid types.UID, status metav1.ConditionStatus, reason string) func(*v1alpha1.Work) {
	return func(w *v1alpha1.Work) {
		c := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: status, Reason: reason}
		w.Status.Conditions = []metav1.Condition{c}
		w.Status.Manifests = []v1alpha1.ManifestStatus{{Kind: "Job", Name: "sums", UID: uid, Conditions: []metav1.Condition{c}}}
	}
}

// A Job may have started in each cluster that got a Work of it, unless the cluster reports that it created nothing.
func TestStartedIn(t *testing.T) {
	t.Parallel()
	refused := reportsJob("", metav1.ConditionFalse, v1alpha1.ReasonRefused)
	removal := func(uids ...types.UID) func(*v1alpha1.Work) {
		return func(w *v1alpha1.Work) { w.Spec.Removal = &v1alpha1.Removal{SourceUID: "present", UIDs: uids} }
	}
	both := func(changes ...func(*v1alpha1.Work)) func(*v1alpha1.Work) {
		return func(w *v1alpha1.Work) {
			for _, change := range changes {
				change(w)
			}
		}
	}
	isRemoved := func(w *v1alpha1.Work) {
		w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved}}
	}
	for name, tc := range map[string]struct {
		reason   string
		state    v1alpha1.TargetState // of east; empty: there is no target
		work     func(*v1alpha1.Work) // nil: there is none
		recorded []v1alpha1.ClusterName
		change   func(*scope.Scope)
		want     string
	}{
		"nowhere":          {reason: "It has no target."},
		"pending":          {reason: "Nothing was sent.", state: v1alpha1.TargetPending},
		"not in the cache": {reason: "The Work may just have been written.", state: v1alpha1.TargetActive, want: "east"},
		"not reported":     {reason: "The agent may be creating it.", state: v1alpha1.TargetActive, work: func(*v1alpha1.Work) {}, want: "east"},
		"runs":             {reason: "It is reported.", state: v1alpha1.TargetActive, work: reportsJob("u", metav1.ConditionTrue, v1alpha1.ReasonAsExpected), want: "east"},
		"tried":            {reason: "A failure that is no answer proves nothing.", state: v1alpha1.TargetActive, work: reportsJob("", metav1.ConditionFalse, v1alpha1.ReasonProgressing), want: "east"},
		"refused":          {reason: "The cluster has created nothing.", state: v1alpha1.TargetActive, work: refused, recorded: []v1alpha1.ClusterName{"east"}},
		"refused before": {
			reason: "The agent may be creating the corrected Job.", state: v1alpha1.TargetActive,
			work: both(refused, func(w *v1alpha1.Work) { w.Status.Revision = 1 }), want: "east",
		},
		"refuses a change": {reason: "The cluster has it.", state: v1alpha1.TargetActive, work: reportsJob("u", metav1.ConditionFalse, "Invalid"), want: "east"},
		"deleted":          {reason: "It has run.", state: v1alpha1.TargetActive, work: reportsJob("u", metav1.ConditionFalse, v1alpha1.ReasonDeletedInCluster), want: "east"},
		"of an earlier Job": {
			reason: "The Work is of another Job of that name.", state: v1alpha1.TargetActive,
			work: both(reportsJob("u", metav1.ConditionTrue, v1alpha1.ReasonAsExpected), func(w *v1alpha1.Work) { w.Spec.Source.UID = "earlier" }),
		},
		"recorded":            {reason: "A user has removed it there.", recorded: []v1alpha1.ClusterName{"east"}, want: "east"},
		"recorded of another": {reason: "An earlier Job of that name has run.", recorded: []v1alpha1.ClusterName{"east"}, change: func(s *scope.Scope) { s.Assignment.Spec.Object.UID = "earlier" }},
		"refused, ordered":    {reason: "The order does not create it.", state: v1alpha1.TargetRemoving, work: both(refused, removal("")), recorded: []v1alpha1.ClusterName{"east"}},
		"refused, removed":    {reason: "The answer to the order names no object.", state: v1alpha1.TargetRemoving, work: both(removal(""), isRemoved)},
		"created, removed": {
			reason: "The agent has created it before it read the order.", state: v1alpha1.TargetRemoving,
			work: both(removal(""), isRemoved, func(w *v1alpha1.Work) {
				w.Status.Manifests = []v1alpha1.ManifestStatus{{Kind: "Job", Name: "sums", UID: "u"}}
			}), want: "east",
		},
		"ran, removed": {reason: "The order has its UID.", state: v1alpha1.TargetRemoving, work: both(removal("u"), isRemoved), want: "east"},
		"records lost": {
			reason: "Its status says that it has run.", want: unknownCluster,
			change: func(s *scope.Scope) { s.Object.Object["status"] = map[string]any{"startTime": "2026-01-01T00:00:00Z"} },
		},
		"ConfigMap": {
			reason: "Another kind may run again.", state: v1alpha1.TargetActive, work: func(*v1alpha1.Work) {},
			change: func(s *scope.Scope) { s.Key.GroupKind = schema.GroupKind{Kind: "ConfigMap"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *v1alpha1.Work
			if tc.work != nil {
				w = jobWork(tc.work)
			}
			s := jobScope(w)
			s.Assignment.Spec.Decision.StartedIn = tc.recorded
			if tc.change != nil {
				tc.change(s)
			}
			a := &v1alpha1.Assignment{}
			if tc.state != "" {
				a.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: tc.state}}
			}
			if got := strings.Join(slices.Sorted(maps.Keys(startedIn(s, a))), ","); got != tc.want {
				t.Errorf("%s\nstartedIn: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A move that an earlier version of the hub began does not go on while a mistake keeps the policy from being used.
func TestKeepStarted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		east   v1alpha1.TargetState
		want   string
	}{
		"leaves":  {"It stays where it has started.", v1alpha1.TargetDraining, "east"},
		"ordered": {"Its removal goes on, and it does not start in west.", v1alpha1.TargetRemoving, ""},
		"active":  {"Each of its clusters is to have it.", v1alpha1.TargetActive, "east,west"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := jobScope(jobWork(reportsJob("u", metav1.ConditionTrue, v1alpha1.ReasonAsExpected)))
			a := s.Assignment.DeepCopy()
			a.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: tc.east}, {Cluster: "west", State: v1alpha1.TargetPending}}
			d := storedDecision(s, a)
			keepStarted(s, a, &d)
			if got := strings.Join(slices.Sorted(maps.Keys(d.Replicas)), ","); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A Work that is gone with its Cluster and namespace does not let the object start in another cluster, if it must run
// in one at a time. A user who removes it everywhere lets it.
func TestMayRunUnseen(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]int64{"west": 0}
	with := func(mode v1alpha1.ReplicaMode, move v1alpha1.MoveMode) *policy.EffectivePolicy {
		p := &policy.EffectivePolicy{}
		p.Spec.Replicas.Mode, p.Spec.Move.Mode = mode, move
		return p
	}
	for name, tc := range map[string]struct {
		reason string
		d      Decision
		unsent bool
		want   bool
	}{
		"make first":  {"Its replicas are replaced.", Decision{Replicas: elsewhere, Policy: with(v1alpha1.ReplicasDivide, v1alpha1.MakeBeforeBreak)}, false, false},
		"break first": {"It must not run twice.", Decision{Replicas: elsewhere, Policy: with(v1alpha1.ReplicasDivide, v1alpha1.BreakBeforeMake)}, false, true},
		"single":      {"Nor must this.", Decision{Replicas: elsewhere, Policy: with(v1alpha1.ReplicasSingle, v1alpha1.MakeBeforeBreak)}, false, true},
		"no policy":   {"Its kind decides.", Decision{Replicas: elsewhere}, false, true},
		"everywhere":  {"A user removes it in all clusters.", Decision{Policy: with(v1alpha1.ReplicasSingle, v1alpha1.BreakBeforeMake)}, false, false},
		"never sent":  {"The cluster never had it.", Decision{Replicas: elsewhere, Policy: with(v1alpha1.ReplicasSingle, v1alpha1.BreakBeforeMake)}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := jobScope(nil)
			if !tc.unsent {
				s.Assignment.Status.Clusters = []v1alpha1.ClusterReport{{Cluster: "east", Revision: 3}}
			}
			if got := mayRunUnseen(s, "east", tc.d); got != tc.want {
				t.Errorf("%s\ngot %t", tc.reason, got)
			}
		})
	}
}

// A cluster that returns takes nothing back, unless it only left the inventory.
func TestIsLeaving(t *testing.T) {
	t.Parallel()
	created := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		reason string
		began  time.Time
		gone   bool
		want   bool
	}{
		"drained":  {"The Cluster was there.", created.Add(time.Minute), false, true},
		"created":  {"The Cluster was created again after that.", created.Add(-time.Minute), false, false},
		"just now": {"The time of creation is cut to seconds.", created.Add(time.Second / 2), false, false},
		"gone":     {"There is no Cluster.", created, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
			if tc.gone {
				c = nil
			}
			if got := isLeaving(c, v1alpha1.Target{LastTransitionTime: &metav1.MicroTime{Time: tc.began}}); got != tc.want {
				t.Errorf("%s\ngot %t", tc.reason, got)
			}
		})
	}
}
