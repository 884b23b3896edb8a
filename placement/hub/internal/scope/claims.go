// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
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
	// Ordered is true when the hub orders something about the claim's volume in one of its clusters: it is to move with
	// the objects, and no other cluster gets an empty one for them.
	Ordered bool
	// Users are the objects that need the claim.
	Users []ClaimUser
	// Shared are the clusters in which another claim has one of these volumes, by VolumeKey.
	Shared map[string][]string
}

// ClaimUser is an object that needs a claim.
type ClaimUser struct {
	kinds.Key
	// Targets of its Assignment.
	Targets []v1alpha1.Target
	// Policy that it has now; nil for none, or if it is the Scope's object, or uses the Scope's object.
	Policy *policy.EffectivePolicy
}

// readClaims reads the claims of the object. The object itself is its only claim if it is one.
func readClaims(ctx context.Context, r *Reader, s *Scope, dependents []v1alpha1.Assignment) error {
	if v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		claim := claimOf(s.Assignment, s.Works)
		for i := range dependents {
			needed, err := r.isNeeded(ctx, s, &dependents[i])
			if err != nil {
				return err
			}
			if needed {
				claim.Users = append(claim.Users, userOf(&dependents[i]))
			}
		}
		s.Claims = map[string]Claim{s.Key.Name: claim}
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
		if err := r.cached.Get(ctx, key.Assignment(), a); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the Assignment of %s: %w", key, err)
		}
		works, err := worksNamed(ctx, r.cached, key.RecordName())
		if err != nil {
			return err
		}
		if s.Claims == nil {
			s.Claims = map[string]Claim{}
		}
		claim := claimOf(a, works)
		users, err := r.dependents(ctx, key)
		if err != nil {
			return err
		}
		for i := range users {
			claim.Users = append(claim.Users, userOf(&users[i]))
		}
		s.Claims[d.Name] = claim
	}
	return nil
}

func userOf(a *v1alpha1.Assignment) ClaimUser {
	return ClaimUser{Key: kinds.KeyOf(a.Spec.Object), Targets: a.Spec.Targets}
}

// readUserPolicies reads the policies of the other objects that use the claims of the object: they may move, too.
func readUserPolicies(ctx context.Context, r *Reader, s *Scope) error {
	if v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return nil
	}
	for _, claim := range s.Claims {
		for i := range claim.Users {
			u := &claim.Users[i]
			k, served := r.kinds.Get(u.GroupKind)
			if u.Key == s.Key || !served {
				continue
			}
			o := kinds.Metadata(k.GroupVersionKind)
			err := r.cached.Get(ctx, u.Object(), o)
			if kinds.IsObjectNotFound(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read metadata of %s: %w", u.Key, err)
			}
			resolved, err := resolve(&Scope{Key: u.Key, Kind: k, Assignment: &v1alpha1.Assignment{}}, o, s.NamespaceLabels, s.Policies)
			if err != nil {
				return err
			}
			u.Policy = resolved.Policy
		}
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
	for _, t := range a.Spec.Targets {
		w := works[string(t.Cluster)]
		c.Ordered = c.Ordered || w != nil && w.Spec.Volume != nil && w.Spec.Removal == nil
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
	v := currentVolumeReport(s.Works[cluster], action)
	return v != nil && v.Action == action && v.Waiting == ""
}

// VolumeMissing reports whether a cluster that is to keep its volume has reported, by that order, that it has none:
// another client has deleted the claim or the PersistentVolume.
func (s *Scope) VolumeMissing(cluster string) bool {
	v := currentVolumeReport(s.Works[cluster], v1alpha1.VolumeKeep)
	return v != nil && v.Action == "" && v.Waiting == "" && v.Source == nil && v.Unmovable != ""
}

// currentVolumeReport returns the report on the order that a Work has; nil when it has another one, or no such report.
func currentVolumeReport(w *v1alpha1.Work, action v1alpha1.VolumeAction) *v1alpha1.VolumeReport {
	if w == nil || w.Spec.Removal != nil || w.Spec.Volume == nil || w.Spec.Volume.Action != action ||
		w.Status.Halted != nil || w.Status.Term != w.Spec.Term || w.Status.Revision != w.Spec.Revision {
		return nil
	}
	return volumeReport(w)
}
