// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// find returns the policy of the highest rank that selects the object.
func find(o Object, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) (*Wish, error) {
	var found []Wish
	for i := range local {
		p := &local[i]
		if p.Namespace != o.Namespace || !o.Namespaced || p.DeletionTimestamp != nil {
			continue
		}
		w := Wish{Source: "Placement " + p.Namespace + "/" + p.Name, UID: p.UID, Spec: p.Spec}
		ok, err := meant(w, o)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, w)
		}
	}
	if len(found) > 0 {
		return one(found)
	}
	for i := range global {
		p := &global[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		w := Wish{Source: "ClusterPlacement " + p.Name, UID: p.UID, Spec: p.Spec.PlacementSpec}
		if o.Namespaced {
			ok, err := selects(p.Spec.NamespaceSelector, o.NamespaceLabels)
			if err != nil {
				return nil, wrong(w.Source, "spec.namespaceSelector", err)
			}
			if !ok {
				continue
			}
		}
		ok, err := meant(w, o)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, w)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	return one(found)
}

// RemovesUnselected says that the policy which placed an object, known by its UID, is still
// there, and says that what it no longer selects is to be removed. A policy that was deleted,
// or is being deleted, says nothing.
func RemovesUnselected(uid types.UID, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) bool {
	removes := func(o *metav1.ObjectMeta, spec *v1alpha1.PlacementSpec) bool {
		return uid != "" && o.UID == uid && o.DeletionTimestamp == nil && spec.OnUnselected == v1alpha1.OnUnselectedRemove
	}
	for i := range local {
		if removes(&local[i].ObjectMeta, &local[i].Spec) {
			return true
		}
	}
	for i := range global {
		if removes(&global[i].ObjectMeta, &global[i].Spec.PlacementSpec) {
			return true
		}
	}
	return false
}

// one returns the only one, and an error for a tie: the same one whatever the order.
func one(found []Wish) (*Wish, error) {
	if len(found) > 1 {
		slices.SortFunc(found, func(a, b Wish) int { return strings.Compare(a.Source, b.Source) })
		return nil, &Error{
			Reason: v1alpha1.ReasonPolicyTie, Object: found[0].Source, Field: "spec.objects",
			Message: fmt.Sprintf("%s selects this object too: leave it out of one of them, or set the annotation %s",
				found[1].Source, v1alpha1.ClustersAnnotation),
		}
	}
	w := found[0]
	w.Spec = *w.Spec.DeepCopy() // it is changed by annotation and defaults
	w.Named = len(w.Spec.Clusters.Names) > 0
	return &w, nil
}

// meant says whether a policy selects an object.
func meant(w Wish, o Object) (bool, error) {
	if len(w.Spec.Objects) == 0 {
		return o.Namespaced, nil
	}
	for i, s := range w.Spec.Objects {
		if s.Kind == "" && !o.Namespaced || s.Kind != "" && (s.Kind != o.Kind.Kind || s.Group != o.Kind.Group) {
			continue
		}
		if len(s.Names) > 0 && !slices.Contains(s.Names, v1alpha1.ObjectName(o.Name)) {
			continue
		}
		ok, err := selects(s.Selector, o.Labels)
		if err != nil {
			return false, wrong(w.Source, fmt.Sprintf("spec.objects[%d].selector", i), err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// selects says that a label selector selects; nil selects all.
func selects(selector *metav1.LabelSelector, set map[string]string) (bool, error) {
	if selector == nil {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, fmt.Errorf("read selector: %w", err)
	}
	return s.Matches(labels.Set(set)), nil
}

func wrong(object, field string, err error) error {
	return &Error{Reason: "InvalidSelector", Object: object, Field: field, Message: err.Error()}
}
