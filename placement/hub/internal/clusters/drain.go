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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
)

// maxListed is how many objects the condition and the status of a drain name.
const maxListed = 10

// maxBlockerMessage bounds the message of a DrainBlocker, in bytes.
const maxBlockerMessage = 256

// drain lets the next objects leave a draining cluster, and returns what the cluster still has.
func (r *Reconciler) drain(
	ctx context.Context, cluster *v1alpha1.Cluster, lease *coordinationv1.Lease, reachable bool,
) (metav1.Condition, *v1alpha1.DrainStatus, error) {
	var assignments v1alpha1.AssignmentList
	if err := r.Cached.List(ctx, &assignments, client.UnsafeDisableDeepCopy); err != nil {
		return metav1.Condition{}, nil, fmt.Errorf("list Assignments: %w", err)
	}
	var works v1alpha1.WorkList
	if err := r.Cached.List(ctx, &works, client.InNamespace(v1alpha1.ClusterNamespacePrefix+cluster.Name), client.UnsafeDisableDeepCopy); err != nil {
		return metav1.Condition{}, nil, fmt.Errorf("list Works of %s: %w", cluster.Name, err)
	}
	r.Drains.Check(cluster, assignments.Items, r.Now())
	p := progressOf(cluster.Name, assignments.Items, r.Drains)
	p.works = len(works.Items)
	p.appliedWorks, p.unknown = appliedWorks(lease, reachable)
	return p.condition(cluster, r.Now()), p.status(cluster.Status.Drain, r.Now()), nil
}

// drainPhase is how far an object is that a draining cluster still has.
type drainPhase int

const (
	phaseWaiting drainPhase = iota
	phaseMoving
	// phaseIgnored: it stays, and the cluster counts as drained nevertheless.
	phaseIgnored
	phaseStaying
	phaseBlocked
)

// drainItem is one object that a draining cluster still has.
type drainItem struct {
	v1alpha1.DrainBlocker
	phase drainPhase
}

// drainProgress is what a draining cluster still has.
type drainProgress struct {
	items        []drainItem // objects that have a target there, by name
	works        int         // that the hub has for the cluster
	appliedWorks int         // that the agent has
	unknown      string      // why appliedWorks is unknown; empty: it is known
}

// progressOf finds the objects that a cluster still has, and why.
func progressOf(cluster string, assignments []v1alpha1.Assignment, drains *limits.Drains) drainProgress {
	var present []*v1alpha1.Assignment
	dependents := map[kinds.Key][]int{} // of a dependency: indexes of present
	for i := range assignments {
		a := &assignments[i]
		if _, ok := limits.TargetOf(a.Spec.Targets, cluster); !ok {
			continue
		}
		for _, key := range limits.DependenciesOf(a) {
			dependents[key] = append(dependents[key], len(present))
		}
		present = append(present, a)
	}
	items := make([]drainItem, len(present))
	for i, a := range present {
		items[i] = itemOf(cluster, a, drains)
	}
	for range 2 { // a ServiceAccount needs Secrets
		for i, a := range present {
			if needed := dependents[kinds.KeyOf(a.Spec.Object)]; len(needed) > 0 && !v1alpha1.IsVolumeClaim(kinds.KeyOf(a.Spec.Object).GroupKind) {
				items[i].follow(items, needed)
			}
		}
	}
	slices.SortFunc(items, func(a, b drainItem) int { return strings.Compare(a.Object, b.Object) })
	return drainProgress{items: items}
}

// itemOf returns how far an object is that has a target in the cluster, without regard to its dependents.
func itemOf(cluster string, a *v1alpha1.Assignment, drains *limits.Drains) drainItem {
	o, key := a.Spec.Object, kinds.KeyOf(a.Spec.Object)
	item := drainItem{DrainBlocker: v1alpha1.DrainBlocker{Object: strings.Trim(o.Kind+" "+o.Namespace+"/"+o.Name, "/")}}
	t, _ := limits.TargetOf(a.Spec.Targets, cluster)
	blocked := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionMoveBlocked)
	placed := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
	stay := drains.StayOf(cluster, key)
	switch {
	case limits.IsLeaving(t) && blocked != nil && blocked.Status == metav1.ConditionTrue:
		item.set(phaseBlocked, v1alpha1.ReasonMoveBlocked, blocked.Message)
	case limits.IsLeaving(t):
		item.phase = phaseMoving
	case stay == limits.Pinned && isDaemonSet(key):
		item.set(phaseIgnored, v1alpha1.ReasonPinned, "its policy allows no other cluster")
	case stay == limits.Pinned:
		item.set(phaseStaying, v1alpha1.ReasonPinned, "its policy allows no other cluster: change it, or delete the object")
	case stay == limits.HasVolumes:
		item.set(phaseStaying, v1alpha1.ReasonVolumesRefused, "it has a volume claim with data in the cluster, and the volume does not move")
	case stay == limits.RunsOnce:
		item.set(phaseStaying, v1alpha1.ReasonRunsOnce, "it has started in the cluster, or may have, and does not run a second time")
	case stay != limits.NotStaying && placed != nil && placed.Status == metav1.ConditionFalse:
		item.set(phaseBlocked, placed.Reason, placed.Message)
	}
	return item
}

// isDaemonSet reports whether an object is for the nodes of its cluster: one that may be in no other cluster is of no
// use without this one.
func isDaemonSet(key kinds.Key) bool {
	return key.GroupKind == schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
}

func (i *drainItem) set(phase drainPhase, reason, message string) {
	if i.phase, i.Reason, i.Message = phase, reason, message; len(message) > maxBlockerMessage {
		i.Message = strings.ToValidUTF8(message[:maxBlockerMessage-3], "") + "..."
	}
}

// follow gives a dependency the phase of the dependent in the cluster that is least able to leave.
func (i *drainItem) follow(items []drainItem, dependents []int) {
	if i.phase == phaseMoving { // its dependents do not need it any more
		return
	}
	least := items[dependents[0]]
	for _, d := range dependents {
		if items[d].phase > least.phase {
			least = items[d]
		}
	}
	i.phase, i.Reason, i.Message = least.phase, "", ""
	if least.phase >= phaseIgnored {
		i.set(least.phase, v1alpha1.ReasonRequired, least.Object+" needs it there")
	}
}

// inPhase returns the objects in one of these phases.
func (p drainProgress) inPhase(phases ...drainPhase) (found []v1alpha1.DrainBlocker) {
	for _, i := range p.items {
		if slices.Contains(phases, i.phase) {
			found = append(found, i.DrainBlocker)
		}
	}
	return found
}

// status returns the progress; before is the stored one.
func (p drainProgress) status(before *v1alpha1.DrainStatus, now time.Time) *v1alpha1.DrainStatus {
	blocked, stays := p.inPhase(phaseBlocked), p.inPhase(phaseStaying, phaseIgnored)
	s := &v1alpha1.DrainStatus{
		StartTime: metav1.NewTime(now).Rfc3339Copy(), Left: int32(len(p.items)), Total: int32(len(p.items)),
		Moving: int32(len(p.inPhase(phaseMoving))), Waiting: int32(len(p.inPhase(phaseWaiting))),
		Blocked: int32(len(blocked)), Staying: int32(len(stays)),
		Blockers: blocked[:min(len(blocked), maxListed)], Stays: stays[:min(len(stays), maxListed)],
	}
	if before != nil {
		s.StartTime, s.Total = before.StartTime, max(before.Total, s.Total)
	}
	return s
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

// condition returns the condition Drained: it is True when the agent has no AppliedWork any more, but those of
// objects that nothing needs without the cluster.
func (p drainProgress) condition(cluster *v1alpha1.Cluster, now time.Time) metav1.Condition {
	drained := metav1.Condition{
		Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDraining, ObservedGeneration: cluster.Generation,
	}
	deadline := cluster.Spec.Drain.Deadline
	late := deadline != nil && !now.Before(deadline.Time)
	ignored, blockers := p.inPhase(phaseIgnored), p.inPhase(phaseBlocked, phaseStaying)
	remaining := slices.Concat(blockers, p.inPhase(phaseMoving, phaseWaiting))
	switch {
	case len(blockers) > 0:
		drained.Reason = v1alpha1.ReasonDrainBlocked
		drained.Message = fmt.Sprintf("%d of %d objects cannot leave: %s", len(blockers), len(p.items), listFirst(blockers))
	case len(remaining) > 0 && late:
		drained.Reason = v1alpha1.ReasonDrainBlocked
		drained.Message = fmt.Sprintf("%d objects have not left by spec.drain.deadline: %s", len(remaining), listFirst(remaining))
	case len(remaining) > 0 || p.works > len(ignored):
		drained.Message = fmt.Sprintf("%d objects have not left yet", max(len(remaining), p.works-len(ignored)))
	case p.unknown != "":
		drained.Status, drained.Reason, drained.Message = metav1.ConditionUnknown, v1alpha1.ReasonAppliedWorksUnknown, p.unknown
	case p.appliedWorks > p.works:
		drained.Reason = v1alpha1.ReasonDrainBlocked
		drained.Message = fmt.Sprintf("%d AppliedWorks in the cluster have no Work at the hub: their objects still run there. "+
			"kubectl get appliedworks in the cluster names them", p.appliedWorks-p.works)
	default:
		drained.Status, drained.Reason = metav1.ConditionTrue, v1alpha1.ReasonDrained
		if len(ignored) > 0 {
			drained.Message = fmt.Sprintf("%d objects are for this cluster only: %s", len(ignored), listFirst(ignored))
		}
	}
	return drained
}

// listFirst lists the first of many objects, with the reasons of those that have one.
func listFirst(objects []v1alpha1.DrainBlocker) string {
	var names []string
	for _, o := range objects[:min(len(objects), maxListed)] {
		name := o.Object
		if o.Reason != "" {
			name += " (" + o.Reason + ")"
		}
		names = append(names, name)
	}
	text := strings.Join(names, ", ")
	if more := len(objects) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
