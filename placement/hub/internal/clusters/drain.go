// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
)

// drainedCondition counts what a draining cluster still has.
func (r *Reconciler) drainedCondition(
	ctx context.Context, cluster *v1alpha1.Cluster, lease *coordinationv1.Lease, reachable bool,
) (metav1.Condition, error) {
	var assignments v1alpha1.AssignmentList
	if err := r.Cached.List(ctx, &assignments, client.UnsafeDisableDeepCopy); err != nil {
		return metav1.Condition{}, fmt.Errorf("list Assignments: %w", err)
	}
	var works v1alpha1.WorkList
	if err := r.Cached.List(ctx, &works, client.InNamespace(v1alpha1.ClusterNamespacePrefix+cluster.Name), client.UnsafeDisableDeepCopy); err != nil {
		return metav1.Condition{}, fmt.Errorf("list Works of %s: %w", cluster.Name, err)
	}
	p := progressOf(cluster.Name, assignments.Items, r.Drains)
	p.works = len(works.Items)
	p.appliedWorks, p.unknown = appliedWorks(lease, reachable)
	return p.condition(cluster, r.Now()), nil
}

// drainProgress is what a draining cluster still has.
type drainProgress struct {
	remaining    []string // names of the objects that have a target there
	blocked      []string // those of them that cannot leave, with the reason
	works        int      // that the hub has for the cluster
	appliedWorks int      // that the agent has
	unknown      string   // why appliedWorks is unknown; empty: it is known
}

// progressOf finds the objects that a cluster still has.
func progressOf(cluster string, assignments []v1alpha1.Assignment, drains *limits.Drains) drainProgress {
	var p drainProgress
	for i := range assignments {
		a := &assignments[i]
		t, ok := limits.TargetOf(a.Spec.Targets, cluster)
		if !ok {
			continue
		}
		name := strings.Trim(a.Spec.Object.Kind+" "+a.Spec.Object.Namespace+"/"+a.Spec.Object.Name, "/")
		p.remaining = append(p.remaining, name)
		placed := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		leaves := limits.IsLeaving(t) || drains.IsWaiting(cluster, kinds.KeyOf(a.Spec.Object))
		switch {
		case placed != nil && placed.Status == metav1.ConditionFalse && !leaves: // else the condition is about another cluster
			p.blocked = append(p.blocked, name+" ("+placed.Reason+")")
		case meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionMoveBlocked):
			p.blocked = append(p.blocked, name+" ("+v1alpha1.ConditionMoveBlocked+")")
		}
	}
	slices.Sort(p.remaining)
	slices.Sort(p.blocked)
	return p
}

// appliedWorks returns how many AppliedWorks the agent has by its last heartbeat, or why that is
// unknown.
func appliedWorks(lease *coordinationv1.Lease, reachable bool) (n int, unknown string) {
	if !reachable {
		return 0, "the cluster does not report what it still has"
	}
	n, err := strconv.Atoi(lease.Annotations[v1alpha1.AppliedWorksAnnotation])
	if err != nil {
		return 0, "the cluster's agent does not report how many AppliedWorks it has: update it"
	}
	return n, ""
}

// condition returns the condition Drained: it is True when the agent has no AppliedWork any more.
func (p drainProgress) condition(cluster *v1alpha1.Cluster, now time.Time) metav1.Condition {
	drained := metav1.Condition{
		Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDraining, ObservedGeneration: cluster.Generation,
	}
	deadline := cluster.Spec.Drain.Deadline
	late := deadline != nil && !now.Before(deadline.Time)
	switch {
	case len(p.blocked) > 0:
		drained.Reason = v1alpha1.ReasonDrainBlocked
		drained.Message = fmt.Sprintf("%d of %d objects cannot leave: %s", len(p.blocked), len(p.remaining), joinFirst(p.blocked))
	case len(p.remaining) > 0 && late:
		drained.Reason = v1alpha1.ReasonDrainBlocked
		drained.Message = fmt.Sprintf("%d objects have not left by spec.drain.deadline: %s", len(p.remaining), joinFirst(p.remaining))
	case len(p.remaining)+p.works > 0:
		drained.Message = fmt.Sprintf("%d objects have not left yet", max(len(p.remaining), p.works))
	case p.unknown != "":
		drained.Status, drained.Reason, drained.Message = metav1.ConditionUnknown, v1alpha1.ReasonAppliedWorksUnknown, p.unknown
	case p.appliedWorks > 0:
		drained.Reason = v1alpha1.ReasonDrainBlocked
		drained.Message = fmt.Sprintf("%d AppliedWorks in the cluster have no Work at the hub: their objects still run there. "+
			"kubectl get appliedworks in the cluster names them", p.appliedWorks)
	default:
		drained.Status, drained.Reason = metav1.ConditionTrue, v1alpha1.ReasonDrained
	}
	return drained
}

// joinFirst lists the first names of many.
func joinFirst(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
