// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// reference names the object.
func (p *pass) reference() v1alpha1.ObjectReference {
	return v1alpha1.ObjectReference{
		Group: p.kind.Group, Version: p.kind.Version, Kind: p.kind.Kind, Resource: p.kind.resource,
		Namespace: p.key.Namespace, Name: p.key.Name, UID: p.object.GetUID(),
	}
}

// adopt gives a target to each Work that has none: its Assignment was lost, or lost a
// row, and what a cluster has is never forgotten.
func (p *pass) adopt(a *v1alpha1.Assignment) {
	known := map[string]bool{}
	for _, t := range a.Spec.Targets {
		known[string(t.Cluster)] = true
	}
	for cluster, w := range p.works {
		if known[cluster] || removed(w) { // that has nothing any more, and is deleted by render
			continue
		}
		t := v1alpha1.Target{
			Cluster: v1alpha1.ClusterName(cluster), State: v1alpha1.TargetActive,
			LastTransitionTime: &metav1.MicroTime{Time: w.CreationTimestamp.Time},
		}
		if w.Spec.Removal != nil {
			t.State = v1alpha1.TargetRemoving
		}
		if n, ok := replicasIn(w); ok {
			t.Replicas, t.RequestedReplicas = new(n), new(n)
		}
		a.Spec.Targets = append(a.Spec.Targets, t)
		if a.Spec.Object.Name == "" {
			a.Spec.Object = w.Spec.Source
		}
		if a.UID == "" && !p.otherLife(w) {
			a.Spec.Decision.OnDelete = w.Spec.OnDelete
		}
	}
}

// assign stores the decision, in one write.
func (p *pass) assign(ctx context.Context, next *v1alpha1.Assignment) error {
	key := p.key.assignment()
	if p.record.UID == "" {
		if p.object == nil && len(next.Spec.Targets) == 0 {
			return nil
		}
		next.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		err := p.direct.Create(ctx, next)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			p.record = next // it went with its namespace; the Works are enough to remove by
			return nil
		}
		if err != nil {
			return fmt.Errorf("create Assignment %s: %w", key, err)
		}
		p.wrote(next)
		return nil
	}
	if equality.Semantic.DeepEqual(p.record.Spec, next.Spec) {
		return nil
	}
	if err := p.direct.Update(ctx, next); err != nil {
		return fmt.Errorf("update Assignment %s: %w", key, err)
	}
	p.wrote(next)
	return nil
}

// replicated says that the object has replicas.
func (p *pass) replicated() bool {
	if p.object == nil {
		return false
	}
	_, ok := replicasOf(p.object)
	return ok
}

// replicasOf is how many replicas an object asks for; a Pod is one.
func replicasOf(o *unstructured.Unstructured) (int32, bool) {
	if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		return 1, true
	}
	return render.Replicas(o)
}

// claimOf is what a decision uses of clusters.
func claimOf(a *v1alpha1.Assignment) claim {
	c := claim{replicas: map[string]int64{}}
	for _, t := range a.Spec.Targets {
		if t.Replicas != nil {
			c.each = perReplica(a.Spec.Decision.Requests)
		}
		c.replicas[string(t.Cluster)] = max(deref(t.Replicas), deref(t.RequestedReplicas))
	}
	return c
}
