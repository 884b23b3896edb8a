// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/policy"
	"github.com/patchbay-cni/patchbay/placement/render"
)

// byFollowed is the index of Assignments by what follows their objects.
const byFollowed = "spec.follows"

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
	for _, f := range a.Spec.Follows {
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
		for _, t := range a.Spec.Targets {
			clusters[string(t.Cluster)] = true
		}
	}
	return clusters, nil
}

// leaderWait is how soon an object is looked at again whose leader's Assignment is missing.
const leaderWait = time.Second

// losesLeader refuses to take an object from where it is needed when that may only seem so: an
// object of the namespace that a cluster has is without its Assignment, which was deleted by
// somebody, and takes along what nobody knows until the hub has made it again.
func (p *pass) losesLeader(ctx context.Context) error {
	for _, k := range p.kinds.all() {
		if !k.namespaced || !render.CanLead(k.GroupKind()) {
			continue
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

// follow records what the object takes along. An object that has lost its policy stays where it
// is, and what it took along stays with it.
func (p *pass) follow(ctx context.Context, a *v1alpha1.Assignment) error {
	if !p.alive() || p.wish == nil {
		return nil // what it needs goes after it, or stays
	}
	if !p.wish.Follows() {
		a.Spec.Follows = nil
		return nil
	}
	found := map[v1alpha1.FollowReference]bool{}
	for _, r := range render.Follow(p.object) {
		gk := schema.GroupKind{Group: r.Group, Kind: r.Kind}
		if r.Namespace == p.key.Namespace && policy.PlaceableObject(gk, r.Namespace, r.Name) {
			found[v1alpha1.FollowReference{Group: r.Group, Kind: r.Kind, Name: r.Name}] = true
		}
	}
	if err := p.along(ctx, found); err != nil {
		return err
	}
	var follows []v1alpha1.FollowReference
	for f := range found {
		follows = append(follows, f)
	}
	slices.SortFunc(follows, func(a, b v1alpha1.FollowReference) int {
		return strings.Compare(followKey(a.Group, a.Kind, a.Name), followKey(b.Group, b.Kind, b.Name))
	})
	a.Spec.Follows = follows[:min(len(follows), maxFollows)]
	return nil
}

// along finds what says itself that it is for the object. What scales the object goes
// along where the policy leaves spec.replicas to it, or the two would contend.
func (p *pass) along(ctx context.Context, found map[v1alpha1.FollowReference]bool) error {
	for _, gvk := range render.Along() {
		if gvk.Kind == "HorizontalPodAutoscaler" && !slices.Contains(p.wish.Spec.Apply.Yield, "spec.replicas") {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := p.cached.List(ctx, list, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %ss in %s: %w", gvk.Kind, p.key.Namespace, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; render.GoesAlong(o, p.object) {
				found[v1alpha1.FollowReference{Group: gvk.Group, Kind: gvk.Kind, Name: o.GetName()}] = true
			}
		}
	}
	return nil
}
