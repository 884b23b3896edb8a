// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/policy"
)

// concerns says whether an object that has no Assignment is to have one.
func (p *pass) concerns(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
	if o.UID == "" {
		return false, nil
	}
	if slices.Contains(o.Finalizers, v1alpha1.PlacedFinalizer) {
		return true, nil
	}
	if o.DeletionTimestamp != nil {
		return false, nil
	}
	leaders, err := p.leaders(ctx)
	if err != nil || len(leaders) > 0 {
		return len(leaders) > 0, err
	}
	wish, err := p.find(ctx, o)
	return wish != nil || err != nil, nil // a mistake is told, later
}

// resolve finds what people want of the object.
func (p *pass) resolve(ctx context.Context) (err error) {
	if !p.alive() {
		return nil
	}
	p.wish, err = p.find(ctx, p.object)
	return err
}

// find asks the policies.
func (p *pass) find(ctx context.Context, o metav1.Object) (*policy.Wish, error) {
	namespace, err := p.namespaceLabels(ctx)
	if err != nil {
		return nil, err
	}
	var local v1alpha1.PlacementList
	if p.kind.namespaced {
		if err := p.cached.List(ctx, &local, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list Placements: %w", err)
		}
	}
	var global v1alpha1.ClusterPlacementList
	if err := p.cached.List(ctx, &global, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ClusterPlacements: %w", err)
	}
	if p.record != nil {
		p.unselected = policy.RemovesUnselected(p.record.Spec.Decision.PolicyUID, local.Items, global.Items)
	}
	return policy.Find(policy.Object{
		Kind: p.key.GroupKind, Namespace: p.key.Namespace, Name: p.key.Name, Namespaced: p.kind.namespaced,
		Labels: o.GetLabels(), Annotations: o.GetAnnotations(), NamespaceLabels: namespace,
	}, local.Items, global.Items)
}

func (p *pass) namespaceLabels(ctx context.Context) (map[string]string, error) {
	if !p.kind.namespaced {
		return nil, nil
	}
	n := metadata(namespaceKind())
	if err := p.cached.Get(ctx, client.ObjectKey{Name: p.key.Namespace}, n); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("look for namespace %s: %w", p.key.Namespace, err)
	}
	return n.Labels, nil
}

// inventory finds all clusters that exist, and whether they report now.
func (p *pass) inventory(ctx context.Context) error {
	var list v1alpha1.ClusterList
	if err := p.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	p.clusters = make(map[string]*v1alpha1.Cluster, len(list.Items))
	for i := range list.Items {
		p.clusters[list.Items[i].Name] = p.presence.current(&list.Items[i], p.now())
	}
	return nil
}

// reach says whether a cluster reports.
func reach(c *v1alpha1.Cluster) policy.Reach {
	condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case condition == nil || condition.Reason == reasonNeverSeen:
		return policy.NeverSeen
	case condition.Status != metav1.ConditionTrue:
		return policy.Silent
	}
	return policy.Reachable
}
