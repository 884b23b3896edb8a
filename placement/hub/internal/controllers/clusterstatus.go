// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

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

// reasonSilent is why a Cluster is not reachable whose agent has reported once.
const reasonSilent = "Silent"

// acceptance is the condition Accepted as it is now.
func acceptance(c *v1alpha1.Cluster, b beat) metav1.Condition {
	accepted := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: c.Generation,
	}
	ns := v1alpha1.ClusterNamespacePrefix + c.Name
	switch {
	case b.taken:
		accepted.Status, accepted.Reason = metav1.ConditionFalse, v1alpha1.ReasonNamespaceTaken
		accepted.Message = "namespace " + ns + " was not made by the hub, and its users would have the rights of the agent: " +
			"delete the namespace, or remove all RoleBindings in it and run: kubectl annotate namespace " + ns + " " + v1alpha1.ClusterUIDAnnotation + "=" + string(c.UID)
	case !c.Spec.Accepted:
		accepted.Status, accepted.Reason = metav1.ConditionFalse, "Waiting"
		accepted.Message = "set spec.accepted, or run: kubectl patchbay cluster accept " + c.Name
	}
	return accepted
}

// reachability is the condition Reachable as it is now. A cluster that has reported once stays
// one that has, also when its heartbeat was deleted: what it has stays there.
func reachability(c *v1alpha1.Cluster, b beat, now time.Time) metav1.Condition {
	reachable := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse}
	before := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	ns := v1alpha1.ClusterNamespacePrefix + c.Name
	switch {
	case b.left(now) > 0:
		reachable.Status, reachable.Reason = metav1.ConditionTrue, "Heartbeat"
	case b.taken:
		reachable.Reason, reachable.Message = v1alpha1.ReasonNamespaceTaken, "namespace "+ns+" was not made by the hub"
	case !b.renewed.IsZero():
		reachable.Reason = reasonSilent
		reachable.Message = "no heartbeat since " + b.renewed.UTC().Format(time.RFC3339) + "; what runs there is not taken for lost"
	case before != nil && before.Reason != reasonNeverSeen && before.Reason != v1alpha1.ReasonNamespaceTaken:
		reachable.Reason = reasonSilent
		reachable.Message = "its heartbeat, the Lease " + ns + "/" + v1alpha1.HeartbeatLease + ", was deleted; what runs there is not taken for lost"
	default:
		reachable.Reason, reachable.Message = reasonNeverSeen, "no agent has joined yet"
	}
	return reachable
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
		trouble := n.Reason == v1alpha1.ReasonDrainBlocked || n.Type == v1alpha1.ConditionAccepted && n.Reason == v1alpha1.ReasonNamespaceTaken
		if trouble && (old == nil || old.Reason != n.Reason) {
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
		client.FieldOwner(v1alpha1.HubFieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("write status of Cluster %s: %w", before.Name, err)
	}
	return nil
}
