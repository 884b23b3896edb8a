// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/summary"
)

// report brings what the clusters report to the Assignment and to the object.
func (p *pass) report(ctx context.Context) error {
	if p.record.UID == "" {
		return nil
	}
	var rows []summary.Row
	status := v1alpha1.AssignmentStatus{ObservedGeneration: p.record.Generation}
	gone := false
	for i := range p.record.Spec.Targets {
		t := &p.record.Spec.Targets[i]
		w := p.works[string(t.Cluster)]
		report := v1alpha1.ClusterReport{Cluster: t.Cluster, Revision: p.lastRevision(string(t.Cluster))}
		if w != nil {
			f := factsOf(p.key.GroupKind, w)
			report.Revision, report.Applied, report.Ready = w.Spec.Revision, f.applied, f.ready
			report.Message, report.Associated = f.message, f.associated
			if t.Replicas != nil && f.status != nil {
				report.Replicas = &f.counts
			}
			if t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetDraining {
				rows = append(rows, p.summaryRow(ctx, t, f))
			}
			gone = gone || f.gone
		}
		status.Clusters = append(status.Clusters, report)
	}
	p.tell(ctx)
	status.Conditions = p.said.merge(p.record.Status.Conditions, p.record.Generation)
	if err := p.writeReport(ctx, status); err != nil {
		return err
	}
	if gone {
		return p.evict(ctx)
	}
	return p.summarise(ctx, rows)
}

// summaryRow is what the summary knows of one cluster.
func (p *pass) summaryRow(ctx context.Context, t *v1alpha1.Target, f facts) summary.Row {
	row := summary.Row{
		Cluster: string(t.Cluster), Observed: f.observed, Generation: f.generation,
		Asked: t.Asked, Wanted: t.Replicas, Ready: f.ready, Status: f.status,
	}
	if row.Asked == nil {
		row.Asked = t.Replicas
	}
	c := &v1alpha1.Cluster{}
	if err := p.cached.Get(ctx, client.ObjectKey{Name: row.Cluster}, c); err == nil {
		row.Reachable = reachable(c)
	}
	return row
}

// writeReport stores the Assignment's status if it is another.
func (p *pass) writeReport(ctx context.Context, status v1alpha1.AssignmentStatus) error {
	if equality.Semantic.DeepEqual(p.record.Status, status) {
		return nil
	}
	next := p.record.DeepCopy()
	next.Status = status
	if err := p.direct.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("report in Assignment %s/%s: %w", next.Namespace, next.Name, err)
	}
	next.Status.DeepCopyInto(&p.record.Status)
	p.record.ResourceVersion = next.ResourceVersion
	return nil
}

// summarise writes the object's own status.
func (p *pass) summarise(ctx context.Context, rows []summary.Row) error {
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
		status = summary.Exact(p.object, rows[0])
	} else if status, err = summary.Sum(p.object, rows, p.now()); err != nil {
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
	if p.key.Group != "" || p.key.Kind != "Pod" || !p.alive() {
		return nil
	}
	uid := p.object.GetUID()
	err := p.direct.Delete(ctx, p.object, client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s, which its cluster has lost: %w", p.key, err)
	}
	return nil
}
