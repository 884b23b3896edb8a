// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// maxNamed is how many objects a condition names.
const maxNamed = 10

// drain is the condition Drained of a cluster that is being drained: True when the cluster's
// agent has no record of an object any more.
func (c *clusters) drain(ctx context.Context, cluster *v1alpha1.Cluster, lease *coordinationv1.Lease, alive bool) (metav1.Condition, error) {
	progress := metav1.Condition{
		Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse, Reason: "Draining", ObservedGeneration: cluster.Generation,
	}
	left, blocked, err := c.leftIn(ctx, cluster.Name)
	if err != nil {
		return progress, err
	}
	var works v1alpha1.WorkList
	if err := c.cached.List(ctx, &works, client.InNamespace(v1alpha1.ClusterNamespacePrefix+cluster.Name), client.UnsafeDisableDeepCopy); err != nil {
		return progress, fmt.Errorf("list Works of %s: %w", cluster.Name, err)
	}
	deadline := cluster.Spec.Drain.Deadline
	late := deadline != nil && !c.now().Before(deadline.Time)
	applied, unknown := appliedWorks(lease, alive)
	switch {
	case len(blocked) > 0:
		progress.Reason, progress.Message = v1alpha1.ReasonDrainBlocked, fmt.Sprintf("%d of %d objects cannot leave: %s", len(blocked), len(left), some(blocked))
	case len(left) > 0 && late:
		progress.Reason = v1alpha1.ReasonDrainBlocked
		progress.Message = fmt.Sprintf("%d objects have not left by spec.drain.deadline: %s", len(left), some(left))
	case len(left)+len(works.Items) > 0:
		progress.Message = fmt.Sprintf("%d objects have not left yet", max(len(left), len(works.Items)))
	case unknown != "":
		progress.Status, progress.Reason, progress.Message = metav1.ConditionUnknown, "NoReport", unknown
	case applied > 0:
		progress.Reason = v1alpha1.ReasonDrainBlocked
		progress.Message = fmt.Sprintf("%d AppliedWorks in the cluster have no Work at the hub: their objects still run there. "+
			"kubectl get appliedworks in the cluster names them", applied)
	default:
		progress.Status, progress.Reason = metav1.ConditionTrue, v1alpha1.ConditionDrained
	}
	return progress, nil
}

// leftIn names the objects that a cluster still has, and those of them that cannot leave.
func (c *clusters) leftIn(ctx context.Context, cluster string) (left, blocked []string, err error) {
	var list v1alpha1.AssignmentList
	if err := c.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list Assignments: %w", err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		at := slices.IndexFunc(a.Spec.Targets, isIn(cluster))
		if at < 0 {
			continue
		}
		name := strings.Trim(a.Spec.Object.Kind+" "+a.Spec.Object.Namespace+"/"+a.Spec.Object.Name, "/")
		left = append(left, name)
		placed := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		goes := leaves(a.Spec.Targets[at]) || c.drains.waits(cluster, keyOf(a.Spec.Object))
		switch {
		case placed != nil && placed.Status == metav1.ConditionFalse && !goes: // else it lacks something elsewhere
			blocked = append(blocked, name+" ("+placed.Reason+")")
		case meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionMoveBlocked):
			blocked = append(blocked, name+" ("+v1alpha1.ConditionMoveBlocked+")")
		}
	}
	slices.Sort(left)
	slices.Sort(blocked)
	return left, blocked, nil
}

// appliedWorks is how many records the agent has, by its last heartbeat, or why that is not
// known.
func appliedWorks(lease *coordinationv1.Lease, alive bool) (n int, unknown string) {
	if !alive {
		return 0, "the cluster does not report what it still has"
	}
	n, err := strconv.Atoi(lease.Annotations[v1alpha1.AppliedWorksAnnotation])
	if err != nil {
		return 0, "the cluster's agent does not report how many AppliedWorks it has: update it"
	}
	return n, ""
}

// some names the first of many.
func some(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}
