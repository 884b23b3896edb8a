// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// reasonNeverSeen is why a Cluster is not reachable that no agent has reported for.
const reasonNeverSeen = "NeverSeen"

// conditions are the hub's, Accepted and Reachable, as they are now.
func (c *clusters) conditions(cluster *v1alpha1.Cluster, lease *coordinationv1.Lease, alive bool) []metav1.Condition {
	accepted := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted",
		ObservedGeneration: cluster.Generation,
	}
	if !cluster.Spec.Accepted {
		accepted.Status, accepted.Reason = metav1.ConditionFalse, "Waiting"
		accepted.Message = "set spec.accepted, or run: kubectl patchbay cluster accept " + cluster.Name
	}
	reachable := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue, Reason: "Heartbeat"}
	switch {
	case alive:
	case lease.Spec.RenewTime == nil:
		reachable.Status, reachable.Reason = metav1.ConditionFalse, reasonNeverSeen
		reachable.Message = "no agent has joined yet"
	default:
		reachable.Status, reachable.Reason = metav1.ConditionFalse, "Silent"
		reachable.Message = "no heartbeat since " + lease.Spec.RenewTime.UTC().Format(time.RFC3339) + "; what runs there is not taken for lost"
	}
	return []metav1.Condition{accepted, reachable}
}

// assigned sums up what the hub has placed on a cluster.
func (c *clusters) assigned(name string) *v1alpha1.Assigned {
	u := c.ledger.of(name)
	a := &v1alpha1.Assigned{Objects: int32(u.objects), Replicas: int32(u.replicas)}
	if u.milliCPU > 0 || u.memory > 0 {
		a.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(u.milliCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(u.memory, resource.BinarySI),
		}
	}
	return a
}

// write applies what the hub says of a Cluster, if that is not what it says already.
func (c *clusters) write(ctx context.Context, before *v1alpha1.Cluster, conditions []metav1.Condition) error {
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(c.now())
		if old := meta.FindStatusCondition(before.Status.Conditions, conditions[i].Type); old != nil && old.Status == conditions[i].Status {
			conditions[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	status := &v1alpha1.ClusterStatus{Conditions: conditions, Assigned: c.assigned(before.Name)}
	ended := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionDrained) != nil &&
		meta.FindStatusCondition(conditions, v1alpha1.ConditionDrained) == nil
	changed := ended || !equality.Semantic.DeepEqual(before.Status.Assigned, status.Assigned)
	for _, n := range conditions {
		old := meta.FindStatusCondition(before.Status.Conditions, n.Type)
		changed = changed || old == nil || *old != n
		if n.Reason == v1alpha1.ReasonDrainBlocked && (old == nil || old.Reason != n.Reason) {
			c.events.Event(before, corev1.EventTypeWarning, n.Reason, n.Message)
		}
	}
	if !changed {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encode status of Cluster %s: %w", before.Name, err)
	}
	next := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	next.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Cluster"))
	next.SetName(before.Name)
	if err := c.direct.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(next),
		client.FieldOwner(v1alpha1.HubManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("write status of Cluster %s: %w", before.Name, err)
	}
	return nil
}
