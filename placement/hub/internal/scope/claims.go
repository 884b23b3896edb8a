// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// Claim is a volume claim that an object uses, with an Assignment of its own.
type Claim struct {
	// Targets of the claim's Assignment; nil when it is not placed.
	Targets []v1alpha1.Target
	// Transfer of the claim's volume; nil before the first one.
	Transfer *v1alpha1.VolumeTransfer
	// Volumes are the reports on the claim's volume, by cluster.
	Volumes map[string]*v1alpha1.VolumeReport
	// Shared are the clusters in which another claim has one of these volumes, by VolumeKey.
	Shared map[string][]string
}

// readClaims reads the claims of the object. The object itself is its only claim if it is one.
func readClaims(ctx context.Context, cached client.Reader, s *Scope) error {
	if v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		s.Claims = map[string]Claim{s.Key.Name: claimOf(s.Assignment, s.Works)}
		return nil
	}
	if s.Object == nil {
		return nil
	}
	for _, d := range render.Dependencies(s.Object) {
		if d.Group != "" || !v1alpha1.IsVolumeClaim(schema.GroupKind{Kind: d.Kind}) {
			continue
		}
		key := kinds.Key{GroupKind: schema.GroupKind{Kind: d.Kind}, Namespace: d.Namespace, Name: d.Name}
		a := &v1alpha1.Assignment{}
		if err := cached.Get(ctx, key.Assignment(), a); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the Assignment of %s: %w", key, err)
		}
		works, err := worksNamed(ctx, cached, key.RecordName())
		if err != nil {
			return err
		}
		if s.Claims == nil {
			s.Claims = map[string]Claim{}
		}
		s.Claims[d.Name] = claimOf(a, works)
	}
	return nil
}

// claimOf returns a claim by its records.
func claimOf(a *v1alpha1.Assignment, works map[string]*v1alpha1.Work) Claim {
	c := Claim{Targets: a.Spec.Targets, Transfer: a.Spec.Volume, Volumes: map[string]*v1alpha1.VolumeReport{}}
	for cluster, w := range works {
		if v := volumeReport(w); v != nil {
			c.Volumes[cluster] = v
		}
	}
	return c
}

// volumeReport returns what a Work reports of its claim's volume; nil when it reports nothing.
func volumeReport(w *v1alpha1.Work) *v1alpha1.VolumeReport {
	if w.Spec.Volume == nil || len(w.Status.Manifests) == 0 {
		return nil
	}
	return w.Status.Manifests[0].Volume
}

// VolumeDone reports whether a cluster has carried out the order about its volume, and has that order.
func (s *Scope) VolumeDone(cluster string, action v1alpha1.VolumeAction) bool {
	w := s.Works[cluster]
	if w == nil || w.Spec.Removal != nil || w.Spec.Volume == nil || w.Spec.Volume.Action != action ||
		w.Status.Halted != nil || w.Status.Term != w.Spec.Term || w.Status.Revision != w.Spec.Revision {
		return false
	}
	v := volumeReport(w)
	return v != nil && v.Action == action && v.Waiting == ""
}
