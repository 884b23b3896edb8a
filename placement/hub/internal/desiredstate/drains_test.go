// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
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
