// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

func TestDrainPriority(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		annotation string
		want       int64
		mistake    bool
	}{
		"annotation": {"It is the user's own order.", "7", 7, false},
		"negative":   {"An object may be the last.", "-7", -7, false},
		"Pods":       {"Without an annotation the Pods have one.", "", 5, false},
		"word":       {"A typo must not make an object the first.", "high", 0, true},
		"too large":  {"It must fit with the priorities of Pods.", "99999999999", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scope.Scope{Object: &unstructured.Unstructured{}, PodPriority: 5}
			if tc.annotation != "" {
				s.Object.SetAnnotations(map[string]string{v1alpha1.DrainPriorityAnnotation: tc.annotation})
			}
			got, mistake := drainPriority(s)
			if got != tc.want || (mistake != nil) != tc.mistake {
				t.Errorf("%s\ngot %d, %v, want %d and a mistake: %t", tc.reason, got, mistake, tc.want, tc.mistake)
			}
		})
	}
}

// A new leader that has not listed the objects of a draining cluster continues the moves out of it.
func TestNewLeaderContinuesMoves(t *testing.T) {
	t.Parallel()
	now := time.Unix(10_000, 0)
	cluster := func(name string, d *v1alpha1.Drain) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.ClusterSpec{Accepted: true, Drain: d},
			Status:     v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}},
		}
	}
	target := func(name v1alpha1.ClusterName, state v1alpha1.TargetState, replicas, requested int32) v1alpha1.Target {
		return v1alpha1.Target{Cluster: name, State: state, Replicas: &replicas, RequestedReplicas: &requested, LastTransitionTime: &metav1.MicroTime{Time: now}}
	}
	for name, tc := range map[string]struct {
		reason  string
		kind    string
		targets []v1alpha1.Target
		want    map[string]int64
	}{
		"StatefulSet": {
			"East has an order to end it, and west does not run it yet.", "StatefulSet",
			[]v1alpha1.Target{target("east", v1alpha1.TargetDraining, 0, 4), target("west", v1alpha1.TargetPending, 4, 0)}, map[string]int64{"west": 4},
		},
		"Deployment": {
			"East has 3 replicas left.", "Deployment",
			[]v1alpha1.Target{target("east", v1alpha1.TargetDraining, 0, 3), target("west", v1alpha1.TargetActive, 4, 4)}, map[string]int64{"west": 4},
		},
		"waits": {
			"It has not begun to leave, and has no slot.", "Deployment",
			[]v1alpha1.Target{target("east", v1alpha1.TargetActive, 4, 4)}, map[string]int64{"east": 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gk := schema.GroupKind{Group: "apps", Kind: tc.kind}
			s := &scope.Scope{
				Key: kinds.Key{GroupKind: gk, Namespace: "shop", Name: "web"}, Now: now,
				Object: &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(4)}}},
				Clusters: map[string]*v1alpha1.Cluster{
					"east": cluster("east", &v1alpha1.Drain{Mode: v1alpha1.DrainMove}), "west": cluster("west", nil),
				},
				Assignment: &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: tc.targets}},
			}
			s.Object.SetGroupVersionKind(gk.WithVersion("v1"))
			s.Object.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: "east,west"})
			p, err := policy.Resolve(policy.Object{
				Kind: gk, Namespace: "shop", Name: "web", Annotations: s.Object.GetAnnotations(),
			}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Assignment.Spec.Decision.Digest = p.Digest()
			d, err := Assign(s, scope.Resolution{Policy: p}, s.Assignment, nil, limits.NewCapacity(time.Now), limits.NewDrains())
			if err != nil || !maps.Equal(d.Replicas, tc.want) {
				t.Errorf("%s\ngot %v, %v, want %v", tc.reason, d.Replicas, err, tc.want)
			}
		})
	}
}

func TestDrainProceedsAtItsDeadline(t *testing.T) {
	t.Parallel()
	now := time.Unix(10_000, 0)
	soon, past := metav1.NewTime(now.Add(time.Minute)), metav1.NewTime(now.Add(-time.Minute))
	for name, tc := range map[string]struct {
		reason   string
		drain    *v1alpha1.Drain
		proceeds bool
		left     time.Duration
	}{
		"no drain":    {"Nothing is to leave.", nil, false, 0},
		"off":         {"The drain was ended.", &v1alpha1.Drain{Mode: v1alpha1.DrainOff, Deadline: &past, OnDeadline: v1alpha1.DeadlineProceed}, false, 0},
		"hold":        {"The deadline only marks.", &v1alpha1.Drain{Mode: v1alpha1.DrainMove, Deadline: &past, OnDeadline: v1alpha1.DeadlineHold}, false, 0},
		"no deadline": {"It never passes.", &v1alpha1.Drain{Mode: v1alpha1.DrainMove, OnDeadline: v1alpha1.DeadlineProceed}, false, 0},
		"soon":        {"It has not passed.", &v1alpha1.Drain{Mode: v1alpha1.DrainMove, Deadline: &soon, OnDeadline: v1alpha1.DeadlineProceed}, false, time.Minute},
		"past":        {"The person orders it.", &v1alpha1.Drain{Mode: v1alpha1.DrainMove, Deadline: &past, OnDeadline: v1alpha1.DeadlineProceed}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proceeds, left := drainProceeds(&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Drain: tc.drain}}, now)
			if proceeds != tc.proceeds || left != tc.left {
				t.Errorf("%s\ngot %t in %s, want %t in %s", tc.reason, proceeds, left, tc.proceeds, tc.left)
			}
		})
	}
}

// A deleted StatefulSet uses its room until each cluster has removed it. No target has its replicas then.
func TestDeletedObjectKeepsItsRoom(t *testing.T) {
	t.Parallel()
	work := func(status v1alpha1.WorkStatus) *v1alpha1.Work {
		w := &v1alpha1.Work{Status: status}
		w.Spec.Manifests = []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db"},"spec":{"replicas":3}}`)}}}
		w.Spec.Revision, w.Spec.Removal = 2, &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete}
		return w
	}
	removed := v1alpha1.WorkStatus{Revision: 2, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved,
	}}}
	s := &scope.Scope{
		Key:   kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, Namespace: "shop", Name: "db"},
		Works: map[string]*v1alpha1.Work{"east": work(v1alpha1.WorkStatus{}), "west": work(removed)},
	}
	next := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: []v1alpha1.Target{
		{Cluster: "east", State: v1alpha1.TargetRemoving, Replicas: new(int32(0))},
		{Cluster: "west", State: v1alpha1.TargetRemoving, Replicas: new(int32(0))},
	}}}
	if got := ReservationOf(s, next).Replicas; got["east"] != 3 || got["west"] != 0 {
		t.Errorf("got %v, want 3 in east, which has not removed it, and 0 in west", got)
	}
}
