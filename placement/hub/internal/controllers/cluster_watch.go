// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// concernedByCluster returns the objects whose placement may depend on the change of a Cluster. Any decision may depend on
// its spec, and on whether it reports. Labels and annotations concern the objects that it has, for which rules read them, and
// labels also those whose policy chooses other clusters by them. Which policy an object has is not known before it is
// reconciled: so all objects that such a policy may select are concerned.
func (l *objectLister) concernedByCluster(ctx context.Context, old, now *v1alpha1.Cluster) []kinds.Key {
	sameLabels := maps.Equal(old.Labels, now.Labels)
	switch {
	case generationChanged(old, now), old.UID != now.UID, clusters.IsReachable(old) != clusters.IsReachable(now):
		return l.assigned(ctx, "")
	case sameLabels && maps.Equal(old.Annotations, now.Annotations):
		return nil
	}
	namespaces := map[string]bool{}
	if !sameLabels {
		var err error
		if namespaces, err = l.namespacesChoosingBy(ctx, old.Labels, now.Labels); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to list policies")
			return l.assigned(ctx, "")
		}
	}
	var list v1alpha1.AssignmentList
	if err := l.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to list Assignments")
	}
	var keys []kinds.Key
	for i := range list.Items {
		a := &list.Items[i]
		key := kinds.KeyOf(a.Spec.Object)
		isThere := func(t v1alpha1.Target) bool { return string(t.Cluster) == now.Name }
		if namespaces[""] || namespaces[key.Namespace] || slices.ContainsFunc(a.Spec.Targets, isThere) {
			keys = append(keys, key)
		}
	}
	return keys
}

// namespacesChoosingBy returns the namespaces of the Placements whose choice of clusters may differ after a change of
// labels; "" stands for all, because of a ClusterPlacement.
func (l *objectLister) namespacesChoosingBy(ctx context.Context, before, after map[string]string) (map[string]bool, error) {
	found := map[string]bool{}
	var everywhere v1alpha1.ClusterPlacementList
	if err := l.cached.List(ctx, &everywhere, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range everywhere.Items {
		if policy.DependsOnLabels(everywhere.Items[i].Spec.Clusters, before, after) {
			found[""] = true
		}
	}
	var list v1alpha1.PlacementList
	if err := l.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if policy.DependsOnLabels(list.Items[i].Spec.Clusters, before, after) {
			found[list.Items[i].Namespace] = true
		}
	}
	return found, nil
}
