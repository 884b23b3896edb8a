// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// The summary lists the targets in one line.
func TestSummary(t *testing.T) {
	t.Parallel()
	many := make([]v1alpha1.Target, 10)
	for i := range many {
		many[i] = v1alpha1.Target{Cluster: "c", State: v1alpha1.TargetActive}
	}
	for name, tc := range map[string]struct {
		reason  string
		targets []v1alpha1.Target
		want    string
	}{
		"none":  {reason: "No target makes an empty summary."},
		"whole": {"Kinds without replicas show clusters only.", []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}, {Cluster: "west", State: v1alpha1.TargetActive}}, "east, west"},
		"moving": {"A state other than Active is shown.", []v1alpha1.Target{
			{Cluster: "east", State: v1alpha1.TargetDraining, RequestedReplicas: new(int32(1))}, {Cluster: "west", State: v1alpha1.TargetActive, RequestedReplicas: new(int32(3))},
		}, "east=1 (Draining), west=3"},
		"many": {"The summary stays short with many targets.", many, "c, c, c, c, c, c, c, c, 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := summaryOf(tc.targets); got != tc.want {
				t.Errorf("%s\nsummaryOf: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// An Assignment of many clusters stays within its bound, whatever they report.
func TestStatusIsTruncated(t *testing.T) {
	t.Parallel()
	broken := make([]v1alpha1.BrokenPod, 20)
	for i := range broken {
		broken[i] = v1alpha1.BrokenPod{Name: "web", Reason: "CrashLoopBackOff", Message: strings.Repeat("x", 256)}
	}
	for name, tc := range map[string]struct {
		reason   string
		clusters int
		message  string
		want     bool
	}{
		"few":     {"Everything fits.", 3, "short", false},
		"broken":  {"The broken Pods are dropped.", 200, "short", true},
		"message": {"The messages are dropped, too.", 500, strings.Repeat("m", 1024), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &v1alpha1.AssignmentStatus{}
			for i := range tc.clusters {
				s.Clusters = append(s.Clusters, v1alpha1.ClusterReport{
					Cluster: v1alpha1.ClusterName(fmt.Sprintf("%055d", i)), Message: tc.message, Replicas: &v1alpha1.ReplicaCounts{Total: 1000},
					Associated: &v1alpha1.Associated{Pods: map[string]int32{"CrashLoopBackOff": 20}, Broken: broken},
				})
			}
			truncate(s)
			raw, err := json.Marshal(s)
			if err != nil || len(raw) > maxReportsBytes || s.Truncated != tc.want || len(s.Clusters) != tc.clusters {
				t.Errorf("%s\ntruncate: got %d bytes, truncated %t, %d rows, %v", tc.reason, len(raw), s.Truncated, len(s.Clusters), err)
			}
		})
	}
}

// A condition that is not as it should be gets one Event with its reason. That of a blocked move has the
// name of the condition.
func TestWarnings(t *testing.T) {
	t.Parallel()
	refused := newCondition(v1alpha1.ConditionPlaced, false, v1alpha1.ReasonVolumesRefused, "data is in east")
	blocked := newCondition(v1alpha1.ConditionMoveBlocked, true, v1alpha1.ReasonStalled, "west is not ready")
	other := newCondition(v1alpha1.ConditionMoveBlocked, true, v1alpha1.ReasonStalled, "west cannot be reached")
	for name, tc := range map[string]struct {
		reason     string
		stored     []metav1.Condition
		conditions []metav1.Condition
		want       []Warning
	}{
		"new":       {"A user learns of the mistake.", nil, []metav1.Condition{refused}, []Warning{{v1alpha1.ReasonVolumesRefused, "data is in east"}}},
		"stored":    {"The Event of the mistake was recorded before.", []metav1.Condition{refused}, []metav1.Condition{refused}, nil},
		"blocked":   {"A user learns of the move that waits.", nil, []metav1.Condition{blocked}, []Warning{{v1alpha1.ReasonMoveBlocked, "west is not ready"}}},
		"waits on":  {"Another cause of the same move gets no Event.", []metav1.Condition{blocked}, []metav1.Condition{other}, nil},
		"as wanted": {"A condition as it should be gets no Event.", nil, []metav1.Condition{newCondition(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonProgressing, "")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, newWarnings(tc.stored, tc.conditions)); diff != "" {
				t.Errorf("%s\nnewWarnings: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A Pod is evicted at the hub only when it was deleted in the cluster that is to run it.
func TestLostPod(t *testing.T) {
	t.Parallel()
	pod, job := schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Group: "batch", Kind: "Job"}
	for name, tc := range map[string]struct {
		reason string
		kind   schema.GroupKind
		state  v1alpha1.TargetState
		uid    string
		gone   bool
		want   bool
	}{
		"lost":    {"The owner of the Pod must create another one.", pod, v1alpha1.TargetActive, "now", true, true},
		"runs":    {"The Pod was not deleted.", pod, v1alpha1.TargetActive, "now", false, false},
		"leaving": {"The Pod moves to another cluster.", pod, v1alpha1.TargetDraining, "now", true, false},
		"removed": {"The hub has ordered its removal.", pod, v1alpha1.TargetRemoving, "now", true, false},
		"earlier": {"The deleted Pod is an earlier one of the same name.", pod, v1alpha1.TargetActive, "before", true, false},
		"job":     {"A Job keeps its last status.", job, v1alpha1.TargetActive, "now", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scopeOfWork(tc.kind, tc.uid)
			if got := isPodLost(s, &v1alpha1.Target{Cluster: "east", State: tc.state}, scope.WorkReport{Gone: tc.gone}); got != tc.want {
				t.Errorf("%s\nisPodLost: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// scopeOfWork returns the Scope of an object with the UID "now", whose Work in east carries the
// object with another UID.
func scopeOfWork(gk schema.GroupKind, uid string) *scope.Scope {
	o := &unstructured.Unstructured{}
	o.SetUID("now")
	w := &v1alpha1.Work{}
	w.Spec.Source.UID = types.UID(uid)
	return &scope.Scope{
		Key: kinds.Key{GroupKind: gk, Name: "once"}, Object: o, Works: map[string]*v1alpha1.Work{"east": w}, Assignment: &v1alpha1.Assignment{},
	}
}
