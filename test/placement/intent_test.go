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

// asked is what people have said at the hub that may remove objects from clusters, as far as the
// writes have been gone through. What our programs write is no order, with three exceptions: a
// Pod that its cluster has lost is deleted at the hub by them, they report whether a cluster is
// reachable, and what takes other objects along stands in their Assignments.
type asked struct {
	objects  map[string]*past[wish]           // by key
	policies map[types.UID]*past[policy]      // by UID: a policy that is made anew is another one
	named    map[string]types.UID             // policies by key
	clusters map[string]*past[inventoryEntry] // by name
	leaders  map[string]*past[leader]         // Assignments by key
}

// wish is what an object at the hub says of itself.
type wish struct {
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

// leader is an Assignment as one that takes objects along.
type leader struct {
	name, namespace string
	follows         []v1alpha1.FollowReference
	clusters        []string
}

// late is how long after an edit the hub may still act on what was said before: it reads from
// caches.
const late = slow

// past is what one thing was over time.
type past[T any] struct {
	from []time.Time
	is   []T
}

// note adds what a thing is from now on.
func note[K comparable, T any](all map[K]*past[T], key K, at time.Time, is T) {
	if all[key] == nil {
		all[key] = &past[T]{}
	}
	all[key].from, all[key].is = append(all[key].from, at), append(all[key].is, is)
}

// lately is what the thing was at some time since a little before; nothing when nobody knows it.
func (p *past[T]) lately(now time.Time) []T {
	if p == nil {
		return nil
	}
	first := len(p.is) - 1
	for first > 0 && p.from[first].After(now.Add(-late)) {
		first--
	}
	return p.is[first:]
}

// last is what the thing is; its zero value when nobody knows it.
func (p *past[T]) last() (is T) {
	if p != nil {
		is = p.is[len(p.is)-1]
	}
	return is
}

func newAsked() *asked {
	return &asked{
		objects: map[string]*past[wish]{}, policies: map[types.UID]*past[policy]{}, named: map[string]types.UID{},
		clusters: map[string]*past[inventoryEntry]{}, leaders: map[string]*past[leader]{},
	}
}

// note takes in a write at the hub, and says what of it cannot be read.
func (a *asked) note(one write) error {
	deletes := strings.HasPrefix(one.Verb, "delete")
	switch {
	case one.Group == v1alpha1.GroupName && one.Resource == "clusters":
		return a.noteCluster(one, deletes)
	case one.Group == v1alpha1.GroupName && one.Resource == "assignments":
		return a.noteLeader(one, deletes)
	case one.ours() && one.Resource != "pods":
		return nil
	case one.Group == v1alpha1.GroupName && strings.HasSuffix(one.Resource, "placements"):
		return a.notePolicy(one, deletes)
	}
	a.noteObject(one, deletes)
	return nil
}

func (a *asked) noteCluster(one write, deletes bool) error {
	if deletes { // the answer may be without labels and spec
		is := a.clusters[one.Name].last()
		is.deleted = true
		note(a.clusters, one.Name, one.Time, is)
		return nil
	}
	is := inventoryEntry{deleted: one.Object.GetDeletionTimestamp() != nil}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &is.Cluster)
	note(a.clusters, one.Name, one.Time, is)
	return err
}

func (a *asked) noteLeader(one write, deletes bool) error {
	var is v1alpha1.Assignment
	switch {
	case one.Subresource != "", deletes && !one.ours():
		return nil // the hub makes one that somebody deletes anew: what it takes along is needed still
	case !deletes:
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &is); err != nil {
			return err
		}
	}
	l := leader{name: is.Spec.Object.Kind + " " + is.Spec.Object.Name, namespace: one.Namespace, follows: is.Spec.Follows}
	for _, t := range is.Spec.Targets {
		l.clusters = append(l.clusters, string(t.Cluster))
	}
	note(a.leaders, one.Key(), one.Time, l)
	return nil
}

func (a *asked) notePolicy(one write, deletes bool) error {
	if deletes {
		for key, uid := range a.named {
			if isOf(key, one) {
				is := a.policies[uid].last()
				is.deleted = true
				note(a.policies, uid, one.Time, is)
			}
		}
		return nil
	}
	var is policy
	spec, _, _ := unstructured.NestedMap(one.Object.Object, "spec")
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &is.spec)
	a.named[one.Key()] = one.Object.GetUID()
	note(a.policies, one.Object.GetUID(), one.Time, is)
	return err
}

func (a *asked) noteObject(one write, deletes bool) {
	var is wish
	switch {
	case deletes:
		for key, object := range a.objects {
			if isOf(key, one) && !object.last().deleted {
				note(a.objects, key, one.Time, wish{deleted: true})
			}
		}
		if one.Name == "" {
			return
		}
		is.deleted = true
	case one.Subresource == "scale":
		is = a.objects[one.Key()].last()
	case one.Subresource != "" && one.Subresource != "status":
		return // its answer is another object
	default:
		is.deleted = one.Object.GetDeletionTimestamp() != nil
		if text, ok := one.Object.GetAnnotations()[v1alpha1.ClustersAnnotation]; ok {
			is.clusters = &text
		}
	}
	if n, ok := counted(&one.Object); ok {
		is.replicas = &n
	}
	note(a.objects, one.Key(), one.Time, is)
}

// isOf tells whether a deletion is of what has a key: that of a collection has no name.
func isOf(key string, deletion write) bool {
	return key == deletion.Key() || deletion.Name == "" && strings.HasPrefix(key, deletion.Key())
}

// annotated reads an annotation as the policy that it is.
func annotated(text string) (spec v1alpha1.PlacementSpec) {
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

// choosesFrom tells whether a choice has a Cluster, as far as names and labels go.
func choosesFrom(choice v1alpha1.ClusterChoice, name string, labels map[string]string) bool {
	named := slices.Contains(choice.Names, v1alpha1.ClusterName(name))
	return (named || len(choice.Names) == 0 && choice.Selector != nil) && selects(choice.Selector, labels)
}
