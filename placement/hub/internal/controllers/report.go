// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/aggregate"
)

// report brings what the clusters report to the Assignment and to the object.
func (p *pass) report(ctx context.Context) error {
	if p.record.UID == "" {
		return nil
	}
	var rows []aggregate.Report
	status := v1alpha1.AssignmentStatus{ObservedGeneration: p.record.Generation, Summary: inShort(p.record.Spec.Targets)}
	gone := false
	for i := range p.record.Spec.Targets {
		t := &p.record.Spec.Targets[i]
		status.Clusters = append(status.Clusters, p.clusterReport(t))
		f, reported := p.facts[string(t.Cluster)]
		gone = gone || p.lostPod(t, f)
		if reported && (t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetDraining) {
			rows = append(rows, p.summaryRow(t, f))
		}
	}
	bound(&status)
	mistaken := p.tell()
	status.Conditions = p.said.merge(p.record.Status.Conditions, p.record.Generation)
	if !equality.Semantic.DeepEqual(p.record.Status, status) && (mistaken || p.due()) {
		before := p.record.Status.Clusters
		if err := p.writeReport(ctx, status); err != nil {
			return err
		}
		p.tellRefused(before, status.Clusters)
	}
	if gone {
		return p.evict(ctx)
	}
	return p.summarise(ctx, rows)
}

// maxReports is how large the rows of all clusters may be, as JSON: an Assignment has its
// targets and conditions besides.
const maxReports = v1alpha1.MaxObjectBytes - 128<<10

// bound leaves out what does not fit: first the broken Pods, then the messages.
func bound(s *v1alpha1.AssignmentStatus) {
	for _, drop := range []func(*v1alpha1.ClusterReport){
		func(r *v1alpha1.ClusterReport) {
			if r.Associated != nil {
				r.Associated = &v1alpha1.Associated{Pods: r.Associated.Pods}
			}
		},
		func(r *v1alpha1.ClusterReport) { r.Associated, r.Message = nil, "" },
	} {
		if raw, err := json.Marshal(s.Clusters); err != nil || len(raw) <= maxReports {
			return
		}
		s.Truncated = true
		for i := range s.Clusters {
			drop(&s.Clusters[i])
		}
	}
}

// lostPod says that the cluster which is to run a Pod has lost it. That of an earlier Pod
// of the same name says nothing of this one.
func (p *pass) lostPod(t *v1alpha1.Target, f facts) bool {
	pod := p.key.Group == "" && p.key.Kind == "Pod"
	return pod && f.gone && t.State == v1alpha1.TargetActive && !p.otherLife(p.works[string(t.Cluster)])
}

// clusterReport is what the Assignment says of one cluster.
func (p *pass) clusterReport(t *v1alpha1.Target) v1alpha1.ClusterReport {
	last := p.lastPosition(string(t.Cluster))
	r := v1alpha1.ClusterReport{Cluster: t.Cluster, Term: last.Term, Revision: last.Revision}
	if w := p.works[string(t.Cluster)]; w != nil {
		f := p.facts[string(t.Cluster)]
		r.Term, r.Revision = w.Spec.Term, w.Spec.Revision
		r.Applied, r.Ready, r.Message, r.Associated = f.applied, f.ready, f.message, f.associated
		if t.Replicas != nil && f.status != nil {
			r.Replicas = &f.counts
		}
	}
	return r
}

// summaryRow is what the summary knows of one cluster.
func (p *pass) summaryRow(t *v1alpha1.Target, f facts) aggregate.Report {
	c := p.clusters[string(t.Cluster)]
	row := aggregate.Report{
		Cluster: string(t.Cluster), ObservedGeneration: f.observed, Generation: f.generation,
		Requested: t.RequestedReplicas, Desired: t.Replicas, Ready: f.ready, Status: f.status, Reachable: c != nil && reachable(c),
	}
	if row.Requested == nil {
		row.Requested = t.Replicas
	}
	return row
}

// writeReport stores the Assignment's status.
func (p *pass) writeReport(ctx context.Context, status v1alpha1.AssignmentStatus) error {
	next := p.record.DeepCopy()
	next.Status = status
	if err := p.direct.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("report in Assignment %s/%s: %w", next.Namespace, next.Name, err)
	}
	p.record.Status, p.record.ResourceVersion = status, next.ResourceVersion
	return nil
}

// summarise writes the object's own status.
func (p *pass) summarise(ctx context.Context, rows []aggregate.Report) error {
	mode := v1alpha1.StatusAuto
	if p.wish != nil {
		mode = p.wish.Spec.Status.Mode
	}
	if p.object == nil || !p.kind.hasStatus || mode == v1alpha1.StatusNone {
		return nil
	}
	var status map[string]any
	var err error
	if len(rows) == 1 && mode == v1alpha1.StatusAuto {
		status = aggregate.TranslateStatus(p.object, rows[0])
	} else if status, err = aggregate.SumStatuses(p.object, rows, p.now()); err != nil {
		return err
	}
	if status == nil || same(status, p.object.Object["status"]) {
		return nil
	}
	next := p.object.DeepCopy()
	next.Object["status"] = status
	if err := p.direct.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("write status of %s: %w", p.key, err)
	}
	p.object = next
	return nil
}

// evict deletes a Pod at the hub that its cluster has lost: whoever made it makes
// another one. It is never made again in its cluster.
func (p *pass) evict(ctx context.Context) error {
	if !p.alive() {
		return nil
	}
	uid := p.object.GetUID()
	err := p.direct.Delete(ctx, p.object, client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s, which its cluster has lost: %w", p.key, err)
	}
	return nil
}
