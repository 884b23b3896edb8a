// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// DefaultRefusedAfter is after how long an agent reports replicas that the cluster does not run.
const DefaultRefusedAfter = 2 * time.Minute

// maxRefusedBytes bounds the message about refused replicas.
const maxRefusedBytes = 256

// reasonFailedCreate is the reason of replicas whose Pods the API server refuses.
const reasonFailedCreate = "FailedCreate"

// refusedReplicas returns the replicas of a live Deployment or ReplicaSet that the cluster has not run for so long:
// those whose Pods the scheduler does not place, and those whose Pods the API server does not create. None is
// available. Later is when more replicas may be refused; 0: when something changes.
func refusedReplicas(live *unstructured.Unstructured, pods []*corev1.Pod, now time.Time, after time.Duration) (_ *v1alpha1.RefusedReplicas, later time.Duration) {
	gvk := live.GroupVersionKind()
	desired, ok, err := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if gvk.Group != appsv1.GroupName || gvk.Kind != "Deployment" && gvk.Kind != "ReplicaSet" || !ok || err != nil || statusInt(live, "observedGeneration") < live.GetGeneration() {
		return nil, 0
	}
	r := &v1alpha1.RefusedReplicas{}
	add := func(n int64, reason, message string, since time.Time) {
		left := after - now.Sub(since)
		switch {
		case n <= 0:
		case left > 0:
			later = soonest(later, left)
		default:
			r.Replicas += int32(min(n, desired))
			r.Reason, r.Message = cmp.Or(r.Reason, reason), cmp.Or(r.Message, truncateText(message, maxRefusedBytes))
		}
	}
	for _, pod := range slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }) {
		if c := unschedulable(pod); c != nil {
			add(1, c.Reason, c.Message, c.LastTransitionTime.Time)
		}
	}
	if message, since, failed := replicaFailure(live); failed {
		add(desired-statusInt(live, "replicas"), reasonFailedCreate, message, since)
	}
	if r.Replicas = min(r.Replicas, int32(max(0, desired-statusInt(live, "availableReplicas")))); r.Replicas == 0 {
		return nil, later
	}
	return r, later
}

// unschedulable returns the condition of a Pod that the scheduler does not place; nil for another one.
func unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// replicaFailure returns since when, and why, the API server does not create the Pods of a Deployment or ReplicaSet.
func replicaFailure(live *unstructured.Unstructured) (message string, since time.Time, failed bool) {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, o := range conditions {
		c, _ := o.(map[string]any)
		if c["type"] != string(appsv1.DeploymentReplicaFailure) || c["status"] != string(corev1.ConditionTrue) {
			continue
		}
		text, _ := c["lastTransitionTime"].(string)
		if since, err := time.Parse(time.RFC3339, text); err == nil {
			message, _ = c["message"].(string)
			return message, since, true
		}
	}
	return "", time.Time{}, false
}

// statusInt returns a number of an object's status; 0 if it is absent.
func statusInt(live *unstructured.Unstructured, field string) int64 {
	n, _, _ := unstructured.NestedInt64(live.Object, "status", field)
	return n
}
