// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
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
	wish, err := p.find(ctx, p.cached, o)
	return wish != nil || err != nil, nil // a mistake is told, later
}

// resolve finds what people want of the object.
func (p *pass) resolve(ctx context.Context) (err error) {
	if !p.alive() {
		return nil
	}
	p.wish, err = p.find(ctx, p.cached, p.object)
	p.policies = saidBy(p.wish, err)
	return err
}

// saidBy tells what policies say apart, and their mistakes.
func saidBy(w *policy.EffectivePolicy, err error) string {
	mistake, ok := errors.AsType[*policy.Error](err)
	switch {
	case ok:
		return mistake.Reason
	case w == nil:
		return ""
	}
	return fmt.Sprint(w.Source, " ", w.UID, " ", w.Digest())
}

// sureToLeave reads what a decision depends on from the API server, not from caches that may be
// behind it, before an object is taken from a cluster.
func (p *pass) sureToLeave(ctx context.Context, before []v1alpha1.Target, next *v1alpha1.Assignment) error {
	left := leftBy(before, next.Spec.Targets)
	if !p.alive() || len(left) == 0 {
		return nil // its deletion was read there
	}
	unselected := p.unselected
	now, err := p.find(ctx, p.direct, p.object)
	if _, mistake := errors.AsType[*policy.Error](err); err != nil && !mistake {
		return err
	}
	if unselected != p.unselected || saidBy(now, err) != p.policies {
		return fmt.Errorf("plan %s: its policy: %w", p.key, errStale)
	}
	for _, name := range left {
		cached, c := p.clusters[name], &v1alpha1.Cluster{}
		if cached == nil {
			continue
		}
		err := p.direct.Get(ctx, client.ObjectKey{Name: name}, c)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Cluster %s: %w", name, err)
		}
		if err != nil || c.UID != cached.UID || c.Generation != cached.Generation || !maps.Equal(c.Labels, cached.Labels) {
			return fmt.Errorf("plan %s: Cluster %s: %w", p.key, name, errStale)
		}
	}
	return nil
}

// leftBy names the clusters that begin to lose the object, or are ordered to remove it.
func leftBy(before, next []v1alpha1.Target) (names []string) {
	for _, t := range next {
		at := slices.IndexFunc(before, isIn(string(t.Cluster)))
		if at < 0 {
			continue
		}
		leaves := before[at].State == v1alpha1.TargetActive && t.State != v1alpha1.TargetActive
		if leaves || t.State == v1alpha1.TargetRemoving && before[at].State != v1alpha1.TargetRemoving {
			names = append(names, string(t.Cluster))
		}
	}
	return names
}

// find asks the policies.
func (p *pass) find(ctx context.Context, from client.Reader, o metav1.Object) (*policy.EffectivePolicy, error) {
	namespace, err := p.namespaceLabels(ctx, from)
	if err != nil {
		return nil, err
	}
	var local v1alpha1.PlacementList
	if p.kind.namespaced {
		if err := from.List(ctx, &local, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list Placements: %w", err)
		}
	}
	var global v1alpha1.ClusterPlacementList
	if err := from.List(ctx, &global, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ClusterPlacements: %w", err)
	}
	if p.record != nil {
		p.unselected = policy.RemovesUnselected(p.record.Spec.Decision.PolicyUID, local.Items, global.Items)
	}
	return policy.Resolve(policy.Object{
		Kind: p.key.GroupKind, Namespace: p.key.Namespace, Name: p.key.Name, Namespaced: p.kind.namespaced,
		Labels: o.GetLabels(), Annotations: o.GetAnnotations(), NamespaceLabels: namespace,
	}, local.Items, global.Items)
}

func (p *pass) namespaceLabels(ctx context.Context, from client.Reader) (map[string]string, error) {
	if !p.kind.namespaced {
		return nil, nil
	}
	n := metadata(namespaceKind())
	if err := from.Get(ctx, client.ObjectKey{Name: p.key.Namespace}, n); client.IgnoreNotFound(err) != nil {
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
func reach(c *v1alpha1.Cluster) policy.Reachability {
	condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case condition == nil || condition.Reason == reasonNeverSeen:
		return policy.NeverReported
	case condition.Status != metav1.ConditionTrue:
		return policy.NotReporting
	}
	return policy.Reachable
}
