// SPDX-License-Identifier: Apache-2.0

package works

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestRefusedReplicas(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pending := func(name string, since time.Duration) *corev1.Pod {
		p := trimmedPod(name, "", corev1.PodPending)
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "Insufficient cpu",
			LastTransitionTime: metav1.NewTime(now.Add(-since)),
		}}
		return p
	}
	ending := pending("ending", time.Hour)
	ending.DeletionTimestamp = new(metav1.NewTime(now))
	quota := func(since time.Duration) map[string]any {
		return map[string]any{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota", "lastTransitionTime": now.Add(-since).Format(time.RFC3339)}
	}
	for name, tc := range map[string]struct {
		reason    string
		kind      string
		pods      []*corev1.Pod
		total     int64 // of 5 replicas
		available int64
		condition map[string]any
		observed  int64 // generation, of 2
		want      *v1alpha1.RefusedReplicas
		later     time.Duration
	}{
		"none": {"All run.", "Deployment", []*corev1.Pod{trimmedPod("a", "n1", corev1.PodRunning)}, 5, 5, nil, 2, nil, 0},
		"unschedulable": {
			"Pods that wait for 2 minutes are refused, the others may be later.", "Deployment",
			[]*corev1.Pod{pending("a", 3*time.Minute), pending("b", 2*time.Minute), pending("c", 90*time.Second), pending("d", time.Minute), ending}, 5, 1, nil, 2,
			&v1alpha1.RefusedReplicas{Replicas: 2, Reason: "Unschedulable", Message: "Insufficient cpu"}, 30 * time.Second,
		},
		"rollout": {
			"Replicas that are available are not refused, whatever waits beside them.", "Deployment",
			[]*corev1.Pod{pending("a", time.Hour), pending("b", time.Hour)}, 6, 4, nil, 2,
			&v1alpha1.RefusedReplicas{Replicas: 1, Reason: "Unschedulable", Message: "Insufficient cpu"}, 0,
		},
		"quota":       {"Pods that the API server does not create do not exist.", "ReplicaSet", nil, 3, 3, quota(time.Hour), 2, &v1alpha1.RefusedReplicas{Replicas: 2, Reason: "FailedCreate", Message: "exceeded quota"}, 0},
		"new quota":   {"It may be for a moment.", "Deployment", nil, 3, 3, quota(time.Minute), 2, nil, time.Minute},
		"unobserved":  {"The status is of an earlier spec.", "Deployment", []*corev1.Pod{pending("a", time.Hour)}, 5, 0, nil, 1, nil, 0},
		"StatefulSet": {"Its replicas do not go elsewhere.", "StatefulSet", []*corev1.Pod{pending("a", time.Hour)}, 5, 0, nil, 2, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := map[string]any{"replicas": tc.total, "availableReplicas": tc.available, "observedGeneration": tc.observed}
			if tc.condition != nil {
				status["conditions"] = []any{tc.condition}
			}
			live := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": tc.kind, "metadata": map[string]any{"name": "web", "generation": int64(2)},
				"spec": map[string]any{"replicas": int64(5)}, "status": status,
			}}
			got, later := refusedReplicas(live, tc.pods, now, DefaultRefusedAfter)
			if d := cmp.Diff(tc.want, got); d != "" || later != tc.later {
				t.Errorf("%s\nlater %s, want %s; -want +got:\n%s", tc.reason, later, tc.later, d)
			}
		})
	}
}
