// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/aggregate"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// maxReportsBytes bounds the reports of all clusters, as JSON: the Assignment has targets and
// conditions besides.
const maxReportsBytes = v1alpha1.MaxObjectBytes - 128<<10

// Status is what clusters report of one object, put together.
type Status struct {
	// Assignment is its status.
	Assignment v1alpha1.AssignmentStatus
	// Warnings are mistakes and blocked moves that the stored Assignment does not report yet.
	Warnings []Warning
	// Refusals are what clusters refuse and the stored Assignment does not report yet.
	Refusals []Warning
	// Evict reports that a Pod was deleted in its cluster: the hub's Pod must be deleted, too.
	Evict bool

	reports []aggregate.Report
	lost    bool // a lost cluster has the object, and does not report
}

// Warning is an Event of type Warning on the object.
type Warning struct {
	// Reason of the Event.
	Reason string
	// Message of the Event.
	Message string
}

// AggregateStatus puts together the conditions of this reconciliation and what the clusters of the
// stored Assignment report.
func AggregateStatus(s *scope.Scope, a *v1alpha1.Assignment, conditions []metav1.Condition) Status {
	st := Status{Assignment: v1alpha1.AssignmentStatus{
		ObservedGeneration: a.Generation, Summary: summaryOf(a.Spec.Targets), Conditions: mergeConditions(a, conditions),
	}}
	for i := range a.Spec.Targets {
		t := &a.Spec.Targets[i]
		cluster := string(t.Cluster)
		st.Assignment.Clusters = append(st.Assignment.Clusters, clusterReport(s, t))
		r, reported := s.Reports[cluster]
		st.lost = st.lost || t.State == v1alpha1.TargetLost
		st.Evict = st.Evict || isPodLost(s, t, r)
		if reported && (t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetDraining) {
			st.reports = append(st.reports, aggregateReport(s.Clusters[cluster], t, r))
		}
	}
	truncate(&st.Assignment)
	st.Warnings = newWarnings(a.Status.Conditions, conditions)
	st.Refusals = newRefusals(s, a.Status.Clusters, st.Assignment.Clusters)
	return st
}

// mergeConditions keeps the transition times of conditions whose status stays.
func mergeConditions(a *v1alpha1.Assignment, conditions []metav1.Condition) []metav1.Condition {
	var merged []metav1.Condition
	for _, c := range a.Status.Conditions {
		if c.Type != v1alpha1.ConditionTrafficMerged || meta.FindStatusCondition(conditions, c.Type) != nil { // the network may be stretched no more
			merged = append(merged, *c.DeepCopy())
		}
	}
	for _, c := range conditions {
		c.ObservedGeneration = a.Generation
		meta.SetStatusCondition(&merged, c)
	}
	return merged
}

// summaryOf lists the targets in one line.
func summaryOf(targets []v1alpha1.Target) string {
	const most = 8
	var parts []string
	for i, t := range targets {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(targets)-i))
			break
		}
		part := string(t.Cluster)
		if t.RequestedReplicas != nil {
			part += fmt.Sprintf("=%d", *t.RequestedReplicas)
		}
		if t.State != v1alpha1.TargetActive {
			part += " (" + string(t.State) + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// clusterReport is what the Assignment reports of one cluster.
func clusterReport(s *scope.Scope, t *v1alpha1.Target) v1alpha1.ClusterReport {
	cluster := string(t.Cluster)
	last := s.LastPosition(cluster)
	report := v1alpha1.ClusterReport{Cluster: t.Cluster, Term: last.Term, Revision: last.Revision}
	if w := s.Works[cluster]; w != nil {
		r := s.Reports[cluster]
		report.Term, report.Revision = w.Spec.Term, w.Spec.Revision
		if t.State == v1alpha1.TargetLost {
			report.Message = "the cluster is lost: what it last reported does not count"
			return report
		}
		report.Applied, report.Ready, report.Message, report.Associated = r.Applied, r.Ready, r.Message, r.Associated
		if t.Replicas != nil && r.Status != nil {
			report.Replicas = &r.Counts
		}
	}
	return report
}

// isPodLost reports whether a Pod was deleted in the cluster that is to run it. The report of an
// earlier Pod of the same name proves nothing about this one.
func isPodLost(s *scope.Scope, t *v1alpha1.Target, r scope.WorkReport) bool {
	return s.Key.IsPod() && r.Gone && t.State == v1alpha1.TargetActive && !s.IsOfEarlierObject(s.Works[string(t.Cluster)])
}

// aggregateReport is what the object's own status depends on of one cluster. C is nil for a cluster
// that is not in the inventory.
func aggregateReport(c *v1alpha1.Cluster, t *v1alpha1.Target, r scope.WorkReport) aggregate.Report {
	report := aggregate.Report{
		Cluster: string(t.Cluster), ObservedGeneration: r.ObservedGeneration, Generation: r.Generation,
		Requested: t.RequestedReplicas, Desired: t.Replicas, Ready: r.Ready, Status: r.Status, Reachable: c != nil && clusters.IsReachable(c),
	}
	if report.Requested == nil {
		report.Requested = t.Replicas
	}
	return report
}

// truncate drops what does not fit: first the broken Pods, then the messages.
func truncate(status *v1alpha1.AssignmentStatus) {
	for _, drop := range []func(*v1alpha1.ClusterReport){
		func(r *v1alpha1.ClusterReport) {
			if r.Associated != nil {
				r.Associated = &v1alpha1.Associated{Pods: r.Associated.Pods}
			}
		},
		func(r *v1alpha1.ClusterReport) { r.Associated, r.Message = nil, "" },
	} {
		if raw, err := json.Marshal(status.Clusters); err != nil || len(raw) <= maxReportsBytes {
			return
		}
		status.Truncated = true
		for i := range status.Clusters {
			drop(&status.Clusters[i])
		}
	}
}

// newWarnings returns the conditions that are not as they should be, and that the stored ones do not
// report yet.
func newWarnings(stored, conditions []metav1.Condition) []Warning {
	var warnings []Warning
	for _, c := range conditions {
		isMoveBlocked := c.Type == v1alpha1.ConditionMoveBlocked
		if isMoveBlocked != (c.Status == metav1.ConditionTrue) {
			continue // as it should be
		}
		before := meta.FindStatusCondition(stored, c.Type)
		if before != nil && before.Status == c.Status && before.Reason == c.Reason && (isMoveBlocked || before.Message == c.Message) {
			continue
		}
		reason := c.Reason
		if isMoveBlocked {
			reason = v1alpha1.ReasonMoveBlocked
		}
		warnings = append(warnings, Warning{Reason: reason, Message: c.Message})
	}
	return warnings
}

// newRefusals returns what clusters refuse, where the stored report has another message.
func newRefusals(s *scope.Scope, stored, reports []v1alpha1.ClusterReport) []Warning {
	messages := map[v1alpha1.ClusterName]string{}
	for i := range stored {
		messages[stored[i].Cluster] = stored[i].Message
	}
	var refusals []Warning
	for i := range reports {
		r := &reports[i]
		reason := s.Reports[string(r.Cluster)].RefusalReason
		if reason != "" && messages[r.Cluster] != r.Message {
			refusals = append(refusals, Warning{Reason: reason, Message: "in " + string(r.Cluster) + ": " + r.Message})
		}
	}
	return refusals
}

// ObjectStatus returns the object's own status as it is to be stored; nil: it stays as it is.
// Object is the object as stored, nil if it does not exist.
func (st Status) ObjectStatus(s *scope.Scope, object *unstructured.Unstructured, d Decision) (map[string]any, error) {
	mode := v1alpha1.StatusAuto
	if d.Policy != nil {
		mode = d.Policy.Spec.Status.Mode
	}
	if object == nil || !s.Kind.HasStatus || mode == v1alpha1.StatusNone {
		return nil, nil
	}
	if len(st.reports) == 0 && policy.RunsOnce(s.Key.GroupKind) && (st.lost || render.HasFinished(object)) {
		return nil, nil // it has left its cluster, and its result stays, or it starts again
	}
	var status map[string]any
	if len(st.reports) == 1 && mode == v1alpha1.StatusAuto {
		status = aggregate.TranslateStatus(object, st.reports[0])
	} else {
		var err error
		if status, err = aggregate.SumStatuses(object, st.reports, s.Now); err != nil {
			return nil, err
		}
	}
	if status == nil || equalAsJSON(status, object.Object["status"]) {
		return nil, nil
	}
	return status, nil
}

// equalAsJSON compares two values as they are stored.
func equalAsJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
