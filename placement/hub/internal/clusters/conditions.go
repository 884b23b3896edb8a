// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// IsReachable reports whether the condition Reachable of a Cluster is True.
func IsReachable(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable)
}

// ReachabilityOf returns what the condition Reachable of a Cluster means for a decision.
func ReachabilityOf(c *v1alpha1.Cluster) policy.Reachability {
	condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case condition == nil || condition.Reason == v1alpha1.ReasonNeverJoined:
		return policy.NeverReported
	case condition.Status != metav1.ConditionTrue:
		return policy.NotReporting
	}
	return policy.Reachable
}

// acceptedCondition returns the condition Accepted.
func acceptedCondition(c *v1alpha1.Cluster, h Heartbeat) metav1.Condition {
	accepted := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: c.Generation,
	}
	ns := v1alpha1.ClusterNamespacePrefix + c.Name
	switch {
	case h.namespaceTaken:
		accepted.Status, accepted.Reason = metav1.ConditionFalse, v1alpha1.ReasonNamespaceTaken
		accepted.Message = "namespace " + ns + " was not created by the hub, and its users would have the rights of the agent: " +
			"delete the namespace, or remove all RoleBindings in it and run: kubectl annotate namespace " + ns + " " + v1alpha1.ClusterUIDAnnotation + "=" + string(c.UID)
	case !c.Spec.Accepted:
		accepted.Status, accepted.Reason = metav1.ConditionFalse, v1alpha1.ReasonAwaitingAcceptance
		accepted.Message = "set spec.accepted, or run: kubectl patchbay cluster accept " + c.Name
	}
	return accepted
}

// reachableCondition returns the condition Reachable. A Cluster whose agent has reported once never
// returns to NeverJoined, also when its heartbeat was deleted: it keeps its objects.
func reachableCondition(c *v1alpha1.Cluster, h Heartbeat, now time.Time) metav1.Condition {
	reachable := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse}
	before := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	ns := v1alpha1.ClusterNamespacePrefix + c.Name
	switch {
	case h.remaining(now) > 0:
		reachable.Status, reachable.Reason = metav1.ConditionTrue, v1alpha1.ReasonHeartbeatReceived
	case h.namespaceTaken:
		reachable.Reason, reachable.Message = v1alpha1.ReasonNamespaceTaken, "namespace "+ns+" was not created by the hub"
	case !h.renewTime.IsZero():
		reachable.Reason = v1alpha1.ReasonHeartbeatLost
		reachable.Message = "no heartbeat since " + h.renewTime.UTC().Format(time.RFC3339) + "; the cluster keeps its objects"
	case before != nil && before.Reason != v1alpha1.ReasonNeverJoined && before.Reason != v1alpha1.ReasonNamespaceTaken:
		reachable.Reason = v1alpha1.ReasonHeartbeatLost
		reachable.Message = "its heartbeat, the Lease " + ns + "/" + v1alpha1.HeartbeatLease + ", was deleted; the cluster keeps its objects"
	default:
		reachable.Reason, reachable.Message = v1alpha1.ReasonNeverJoined, "no agent has joined yet"
	}
	return reachable
}

// isDeclaredLost reports whether an admin has declared a cluster lost, and it has not reported since. The API server
// accepts a declaration only with the stored last heartbeat, which ends with the first report: another one, or none, is
// the proof of a report, also when the Lease is gone. This hub may have seen a report that is not stored yet.
func isDeclaredLost(c *v1alpha1.Cluster, h Heartbeat, now time.Time) bool {
	d, stored := c.Spec.DeclaredLost, c.Status.LastHeartbeat
	if d == nil || h.remaining(now) > 0 || h.namespaceTaken || ReachabilityOf(c) == policy.NeverReported {
		return false
	}
	return stored.Equal(&d.LastHeartbeat) && (h.newest.IsZero() || h.newest.Equal(d.LastHeartbeat.Time))
}

// declaredLostCondition returns the condition DeclaredLost of a Cluster that an admin has declared lost.
func declaredLostCondition(c *v1alpha1.Cluster, h Heartbeat, now time.Time) metav1.Condition {
	lost := metav1.Condition{
		Type: v1alpha1.ConditionDeclaredLost, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeclaredLost, ObservedGeneration: c.Generation,
		Message: "an admin has declared that the cluster runs nothing any more: other clusters run what it had. That ends when it reports",
	}
	if !isDeclaredLost(c, h, now) {
		lost.Status, lost.Reason = metav1.ConditionFalse, v1alpha1.ReasonReportedSince
		lost.Message = "the cluster was declared lost, and reports, or has reported since: it loses what other clusters have taken over. " +
			"Run: kubectl patchbay cluster declare-lost " + c.Name + " --undo"
	}
	return lost
}
