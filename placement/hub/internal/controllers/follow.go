// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// byFollowed is the index of Assignments by what follows their objects.
const byFollowed = "spec.dependencies"

// maxFollows is how many the schema takes.
const maxFollows = 256

// followKey is the index's key of an object.
func followKey(group, kind, name string) string {
	return strings.Join([]string{group, kind, name}, "/")
}

// followKeys are the index's keys of one Assignment.
func followKeys(o client.Object) []string {
	a, ok := o.(*v1alpha1.Assignment)
	if !ok {
		return nil
	}
	var keys []string
	for _, f := range a.Spec.Dependencies {
		keys = append(keys, followKey(f.Group, f.Kind, f.Name))
	}
	return keys
}

// leaders are the Assignments of objects that take this one along.
func (p *pass) leaders(ctx context.Context) ([]v1alpha1.Assignment, error) {
	if !p.kind.namespaced {
		return nil, nil
	}
	var list v1alpha1.AssignmentList
	if err := p.cached.List(ctx, &list, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{byFollowed: followKey(p.key.Group, p.key.Kind, p.key.Name)}); err != nil {
		return nil, fmt.Errorf("list what takes %s along: %w", p.key, err)
	}
	return list.Items, nil
}

// followedTo are the clusters where something needs the object: until the last
// replica has left it.
func (p *pass) followedTo(ctx context.Context) (map[string]bool, error) {
	leaders, err := p.leaders(ctx)
	if err != nil {
		return nil, err
	}
	clusters := map[string]bool{}
	for _, a := range leaders {
		if ok, err := p.needed(ctx, &a); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		for _, t := range a.Spec.Targets {
			clusters[string(t.Cluster)] = true
		}
	}
	return clusters, nil
}

// needed says that an object which takes this one along needs it. What a person has annotated goes
// where that says once it is not named any more.
func (p *pass) needed(ctx context.Context, leader *v1alpha1.Assignment) (bool, error) {
	if _, annotated := p.annotations()[v1alpha1.ClustersAnnotation]; !annotated {
		return true, nil
	}
	o := empty(schema.GroupVersionKind{Group: leader.Spec.Object.Group, Version: leader.Spec.Object.Version, Kind: leader.Spec.Object.Kind})
	err := p.direct.Get(ctx, client.ObjectKey{Namespace: leader.Spec.Object.Namespace, Name: leader.Spec.Object.Name}, o)
	if absent(err) {
		return true, nil // until its clusters have removed it
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", keyOf(leader.Spec.Object), err)
	}
	named := slices.ContainsFunc(render.Dependencies(o), func(r render.Reference) bool {
		return r.Group == p.key.Group && r.Kind == p.key.Kind && r.Namespace == p.key.Namespace && r.Name == p.key.Name
	})
	return named || o.GetDeletionTimestamp() != nil || render.IsCompanionOf(p.object, o), nil
}

// annotations are those of the object; none if it is gone.
func (p *pass) annotations() map[string]string {
	if p.object == nil {
		return nil
	}
	return p.object.GetAnnotations()
}

// leaderWait is how soon an object is looked at again whose leader's Assignment is missing.
const leaderWait = time.Second

// losesLeader refuses to take an object from where it is needed when that may only seem so: an
// object of the namespace that a cluster has is without its Assignment, which was deleted by
// somebody, and takes along what nobody knows until the hub has made it again.
func (p *pass) losesLeader(ctx context.Context) error {
	for _, k := range p.kinds.all() {
		if !k.namespaced || !render.MayHaveDependencies(k.GroupKind()) {
			continue
		}
		if !p.listed(ctx, k) {
			p.again(listWait)
			return &policy.Error{Reason: v1alpha1.ReasonAssignmentLost, Message: fmt.Sprintf(
				"objects of kind %s cannot be listed, and one of them may take this object along: it stays", k.Kind)}
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		if err := p.cached.List(ctx, list, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %ss in %s: %w", k.Kind, p.key.Namespace, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			leader := Key{GroupKind: k.GroupKind(), Namespace: o.Namespace, Name: o.Name}
			if leader == p.key || !slices.Contains(o.Finalizers, v1alpha1.PlacedFinalizer) {
				continue
			}
			err := p.cached.Get(ctx, leader.assignment(), &v1alpha1.Assignment{})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("look for the Assignment of %s: %w", leader, err)
			}
			if err != nil {
				p.again(leaderWait)
				return &policy.Error{Reason: v1alpha1.ReasonAssignmentLost, Message: fmt.Sprintf(
					"the Assignment of %s is missing: this object stays until it is there again", leader)}
			}
		}
	}
	return nil
}

// follow records what the object takes along, and what it has taken along: as long as the object has
// targets that stays with it, for Pods of an earlier template. An object that has lost its policy
// stays where it is, and what it took along stays with it.
func (p *pass) follow(ctx context.Context, a *v1alpha1.Assignment) error {
	if !p.alive() || p.wish == nil && p.record.UID != "" {
		return nil // what it needs goes after it, or stays
	}
	found := map[v1alpha1.DependencyReference]bool{}
	if p.wish == nil || p.wish.IncludesDependencies() {
		for _, r := range render.Dependencies(p.object) {
			gk := schema.GroupKind{Group: r.Group, Kind: r.Kind}
			if r.Namespace == p.key.Namespace && policy.PlaceableObject(gk, r.Namespace, r.Name) {
				found[v1alpha1.DependencyReference{Group: r.Group, Kind: r.Kind, Name: r.Name}] = true
			}
		}
		if err := p.along(ctx, found); err != nil {
			return err
		}
	}
	follows := slices.SortedFunc(maps.Keys(found), byKey)
	before, err := p.taken(ctx, a, found)
	if err != nil {
		return err
	}
	follows = append(follows, before...) // what was named last comes first
	a.Spec.Dependencies = follows[:min(len(follows), maxFollows)]
	return nil
}

func byKey(a, b v1alpha1.DependencyReference) int {
	return strings.Compare(followKey(a.Group, a.Kind, a.Name), followKey(b.Group, b.Kind, b.Name))
}

// taken is what the object has taken along and no longer names. It stays until the object leaves,
// it is deleted, or it is placed itself: then a person may remove it.
func (p *pass) taken(ctx context.Context, a *v1alpha1.Assignment, named map[v1alpha1.DependencyReference]bool) ([]v1alpha1.DependencyReference, error) {
	var stay []v1alpha1.DependencyReference
	if len(a.Spec.Targets) == 0 {
		return nil, nil
	}
	for _, f := range a.Spec.Dependencies {
		if named[f] || f.Kind == scaler && !p.yields() {
			continue
		}
		k, served := p.kinds.get(schema.GroupKind{Group: f.Group, Kind: f.Kind})
		if !served {
			stay = append(stay, f)
			continue
		}
		o := metadata(k.GroupVersionKind)
		err := p.cached.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: f.Name}, o)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("look for %s %s/%s: %w", f.Kind, p.key.Namespace, f.Name, err)
		}
		if _, annotated := o.Annotations[v1alpha1.ClustersAnnotation]; err == nil && o.DeletionTimestamp == nil && !annotated {
			stay = append(stay, f)
		}
	}
	return stay, nil
}

// scaler is the kind that goes along only where the policy leaves spec.replicas to it.
const scaler = "HorizontalPodAutoscaler"

func (p *pass) yields() bool {
	return p.wish != nil && slices.Contains(p.wish.Spec.Apply.Yield, "spec.replicas")
}

// along finds what says itself that it is for the object. What scales the object goes
// along where the policy leaves spec.replicas to it, or the two would contend.
func (p *pass) along(ctx context.Context, found map[v1alpha1.DependencyReference]bool) error {
	for _, gvk := range render.CompanionKinds() {
		if gvk.Kind == scaler && !p.yields() {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := p.cached.List(ctx, list, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %ss in %s: %w", gvk.Kind, p.key.Namespace, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; render.IsCompanionOf(o, p.object) {
				found[v1alpha1.DependencyReference{Group: gvk.Group, Kind: gvk.Kind, Name: o.GetName()}] = true
			}
		}
	}
	return nil
}
