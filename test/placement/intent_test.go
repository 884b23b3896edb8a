// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// userIntent is what people have said at the hub that may remove objects from clusters, as far as the
// writes have been gone through. What our programs write is no order, with three exceptions: a
// Pod that its cluster has lost is deleted at the hub by them, they report whether a cluster is
// reachable, and what takes other objects along stands in their Assignments.
type userIntent struct {
	objects    map[string]*timeline[objectIntent]   // by key
	policies   map[types.UID]*timeline[policy]      // by UID: a policy that is made anew is another one
	policyUIDs map[string]types.UID                 // policies by key
	clusters   map[string]*timeline[inventoryEntry] // by name
	dependents map[string]*timeline[dependentState] // Assignments by key
}

// objectIntent is what an object at the hub says of itself.
type objectIntent struct {
	deleted  bool
	clusters *string // the annotation
	replicas *int64
}

// policy is a Placement or a ClusterPlacement.
type policy struct {
	deleted bool
	spec    v1alpha1.PlacementSpec
}

// inventoryEntry is a Cluster.
type inventoryEntry struct {
	deleted bool
	v1alpha1.Cluster
}

// dependentState is an Assignment as one that takes objects along.
type dependentState struct {
	name, namespace string
	dependencies    []v1alpha1.DependencyReference
	clusters        []string
}

// cacheLag is how long after an edit the hub may still act on what was said before: it reads from
// caches.
const cacheLag = 20 * time.Second

// timeline is what one thing was over time.
type timeline[T any] struct {
	since  []time.Time
	values []T
}

// appendTimeline adds what a thing is from now on.
func appendTimeline[K comparable, T any](all map[K]*timeline[T], key K, at time.Time, is T) {
	if all[key] == nil {
		all[key] = &timeline[T]{}
	}
	all[key].since, all[key].values = append(all[key].since, at), append(all[key].values, is)
}

// recent is what the thing was at some time since a little before; nothing when nobody knows it.
func (p *timeline[T]) recent(now time.Time) []T {
	if p == nil {
		return nil
	}
	first := len(p.values) - 1
	for first > 0 && p.since[first].After(now.Add(-cacheLag)) {
		first--
	}
	return p.values[first:]
}

// latest is what the thing is; its zero value when nobody knows it.
func (p *timeline[T]) latest() (is T) {
	if p != nil {
		is = p.values[len(p.values)-1]
	}
	return is
}

func newUserIntent() *userIntent {
	return &userIntent{
		objects: map[string]*timeline[objectIntent]{}, policies: map[types.UID]*timeline[policy]{}, policyUIDs: map[string]types.UID{},
		clusters: map[string]*timeline[inventoryEntry]{}, dependents: map[string]*timeline[dependentState]{},
	}
}

// record takes in a write at the hub, and says what of it cannot be read.
func (a *userIntent) record(one write) error {
	deletes := strings.HasPrefix(one.Verb, "delete")
	switch {
	case one.Group == v1alpha1.GroupName && one.Resource == "clusters":
		return a.recordCluster(one, deletes)
	case one.Group == v1alpha1.GroupName && one.Resource == "assignments":
		return a.recordDependent(one, deletes)
	case one.isOurs() && one.Resource != "pods":
		return nil
	case one.Group == v1alpha1.GroupName && strings.HasSuffix(one.Resource, "placements"):
		return a.recordPolicy(one, deletes)
	}
	a.recordObject(one, deletes)
	return nil
}

func (a *userIntent) recordCluster(one write, deletes bool) error {
	if deletes { // the answer may be without labels and spec
		is := a.clusters[one.Name].latest()
		is.deleted = true
		appendTimeline(a.clusters, one.Name, one.Time, is)
		return nil
	}
	is := inventoryEntry{deleted: one.Object.GetDeletionTimestamp() != nil}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &is.Cluster)
	appendTimeline(a.clusters, one.Name, one.Time, is)
	return err
}

func (a *userIntent) recordDependent(one write, deletes bool) error {
	var is v1alpha1.Assignment
	switch {
	case one.Subresource != "", deletes && !one.isOurs():
		return nil // the hub makes one that somebody deletes anew: what it takes along is needed still
	case !deletes:
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &is); err != nil {
			return err
		}
	}
	l := dependentState{name: is.Spec.Object.Kind + " " + is.Spec.Object.Name, namespace: one.Namespace, dependencies: is.Spec.Dependencies}
	for _, t := range is.Spec.Targets {
		l.clusters = append(l.clusters, string(t.Cluster))
	}
	appendTimeline(a.dependents, one.Key(), one.Time, l)
	return nil
}

func (a *userIntent) recordPolicy(one write, deletes bool) error {
	if deletes {
		for key, uid := range a.policyUIDs {
			if deletionMatches(key, one) {
				is := a.policies[uid].latest()
				is.deleted = true
				appendTimeline(a.policies, uid, one.Time, is)
			}
		}
		return nil
	}
	var is policy
	spec, _, _ := unstructured.NestedMap(one.Object.Object, "spec")
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &is.spec)
	a.policyUIDs[one.Key()] = one.Object.GetUID()
	appendTimeline(a.policies, one.Object.GetUID(), one.Time, is)
	return err
}

func (a *userIntent) recordObject(one write, deletes bool) {
	var is objectIntent
	switch {
	case deletes:
		for key, object := range a.objects {
			if deletionMatches(key, one) && !object.latest().deleted {
				appendTimeline(a.objects, key, one.Time, objectIntent{deleted: true})
			}
		}
		if one.Name == "" {
			return
		}
		is.deleted = true
	case one.Subresource == "scale":
		is = a.objects[one.Key()].latest()
	case one.Subresource != "" && one.Subresource != "status":
		return // its answer is another object
	default:
		is.deleted = one.Object.GetDeletionTimestamp() != nil
		if text, ok := one.Object.GetAnnotations()[v1alpha1.ClustersAnnotation]; ok {
			is.clusters = &text
		}
	}
	if n, ok := specReplicas(&one.Object); ok {
		is.replicas = &n
	}
	appendTimeline(a.objects, one.Key(), one.Time, is)
}

// deletionMatches tells whether a deletion is of what has a key: that of a collection has no name.
func deletionMatches(key string, deletion write) bool {
	return key == deletion.Key() || deletion.Name == "" && strings.HasPrefix(key, deletion.Key())
}

// parseAnnotation reads an annotation as the policy that it is.
func parseAnnotation(text string) (spec v1alpha1.PlacementSpec) {
	for part := range strings.SplitSeq(text, ",") {
		name, number, weighted := strings.Cut(strings.TrimSpace(part), "=")
		if name == "" {
			continue
		}
		spec.Clusters.Names = append(spec.Clusters.Names, v1alpha1.ClusterName(name))
		if n, err := strconv.ParseInt(number, 10, 32); weighted && err == nil {
			if spec.Replicas.Weights == nil {
				spec.Replicas.Weights = map[string]v1alpha1.Weight{}
			}
			spec.Replicas.Weights[name] = v1alpha1.Weight(n)
		}
	}
	return spec
}

// choiceMatches tells whether a choice has a Cluster, as far as names and labels go.
func choiceMatches(choice v1alpha1.ClusterChoice, name string, labels map[string]string) bool {
	named := slices.Contains(choice.Names, v1alpha1.ClusterName(name))
	return (named || len(choice.Names) == 0 && choice.Selector != nil) && selects(choice.Selector, labels)
}
