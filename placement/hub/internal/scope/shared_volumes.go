// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// volumeIndex finds Works and Assignments of claims by the volumes that they name.
const volumeIndex = "spec.volume"

// VolumeKey identifies a volume.
func VolumeKey(source *v1alpha1.VolumeSource) string { return source.Driver + "/" + source.Handle }

// volumeIndexKeys returns the keys of the volumes that a Work orders or reports, or that an Assignment moves.
func volumeIndexKeys(o client.Object) (keys []string) {
	add := func(source *v1alpha1.VolumeSource) {
		if source != nil && !slices.Contains(keys, VolumeKey(source)) {
			keys = append(keys, VolumeKey(source))
		}
	}
	switch o := o.(type) {
	case *v1alpha1.Assignment:
		if v := o.Spec.Volume; v != nil {
			add(&v.Source)
		}
	case *v1alpha1.Work:
		if v := o.Spec.Volume; v != nil {
			add(v.Source)
		}
		if v := volumeReport(o); v != nil {
			add(v.Source)
		}
	}
	return keys
}

// readSharedVolumes reads where other claims have the volumes of the object's claims.
func readSharedVolumes(ctx context.Context, cached client.Reader, s *Scope) error {
	for name, c := range s.Claims {
		key := kinds.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: s.Key.Namespace, Name: name}
		sources := map[string]bool{}
		for _, report := range c.Volumes {
			if report.Source != nil {
				sources[VolumeKey(report.Source)] = true
			}
		}
		if c.Transfer != nil {
			sources[VolumeKey(&c.Transfer.Source)] = true
		}
		c.Shared = map[string][]string{}
		for volume := range sources {
			clusters, err := otherClustersOf(ctx, cached, key, volume)
			if err != nil {
				return err
			}
			c.Shared[volume] = clusters
		}
		s.Claims[name] = c
	}
	return nil
}

// otherClustersOf returns the clusters in which another claim than that of the key has a volume.
func otherClustersOf(ctx context.Context, cached client.Reader, key kinds.Key, volume string) (names []string, err error) {
	var works v1alpha1.WorkList
	if err := cached.List(ctx, &works, client.MatchingFields{volumeIndex: volume}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Works with the volume %s: %w", volume, err)
	}
	for i := range works.Items {
		if cluster, ok := kinds.ClusterOfNamespace(works.Items[i].Namespace); ok && kinds.KeyOf(works.Items[i].Spec.Source) != key {
			names = append(names, cluster)
		}
	}
	var assignments v1alpha1.AssignmentList
	if err := cached.List(ctx, &assignments, client.MatchingFields{volumeIndex: volume}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Assignments with the volume %s: %w", volume, err)
	}
	for i := range assignments.Items {
		if a := &assignments.Items[i]; kinds.KeyOf(a.Spec.Object) != key {
			names = append(names, string(a.Spec.Volume.To))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
