// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// autoscaledObject is what is requested of the clusters for one object whose spec.replicas is left to autoscalers. It
// knows that from what was written there, not from what the hub has made of it.
type autoscaledObject struct {
	asked   map[string]int64 // in each cluster now
	most    map[string]int64 // in each cluster, in this move
	leaving map[string]bool  // clusters that are to lose replicas
	moving  bool
	wanted  int64 // by autoscalers; 0 as long as none has written
}

// autoscaledObjects are those objects, by their keys.
type autoscaledObjects map[string]*autoscaledObject

// recordHub notes which objects yield spec.replicas, and how they move.
func (a autoscaledObjects) recordHub(one write) {
	switch {
	case one.Subresource != "" || one.Group != v1alpha1.GroupName:
	case one.Resource == "works":
		var w v1alpha1.Work
		if runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &w) != nil || !w.Spec.Apply.YieldsReplicas() {
			return
		}
		s := w.Spec.Source
		if key := keyOf(s.Group, s.Resource, s.Namespace, s.Name); a[key] == nil {
			a[key] = &autoscaledObject{asked: map[string]int64{}, most: map[string]int64{}}
		}
	case one.Resource == "assignments":
		var is v1alpha1.Assignment
		if runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &is) != nil {
			return
		}
		s := is.Spec.Object
		if o := a[keyOf(s.Group, s.Resource, s.Namespace, s.Name)]; o != nil {
			o.moving, o.leaving = false, map[string]bool{}
			for _, t := range is.Spec.Targets {
				leaves := t.State == v1alpha1.TargetDraining || t.State == v1alpha1.TargetRemoving
				o.leaving[string(t.Cluster)] = leaves
				steps := t.RequestedReplicas != nil && *t.RequestedReplicas != ptr.Deref(t.Replicas, 0)
				o.moving = o.moving || leaves || steps || t.State == v1alpha1.TargetPending
			}
		}
	}
}

// recordCluster notes what a write requests. Others than we say what is wanted: at rest all that they say, and in a
// move what they add.
func (o *autoscaledObject) recordCluster(one write) {
	asked, found, _ := unstructured.NestedInt64(one.Object.Object, "spec", "replicas")
	switch {
	case one.Verb == "delete":
		delete(o.asked, one.cluster)
		return
	case !found, asked == o.asked[one.cluster]:
		return
	}
	o.asked[one.cluster] = asked
	switch {
	case one.isOurs():
	case o.moving:
		o.wanted += max(0, asked-o.most[one.cluster])
	default:
		o.wanted, o.most = 0, map[string]int64{}
		for cluster, n := range o.asked {
			o.wanted, o.most[cluster] = o.wanted+n, n
		}
	}
	o.most[one.cluster] = max(o.most[one.cluster], asked)
}

// mayLose tells whether a write takes replicas by an order of ours: one of our programs writes it, or an autoscaler in a
// cluster that is to lose its replicas, which keeps to the bounds that we have set.
func (o *autoscaledObject) mayLose(one write) bool {
	return one.isApplied() || o != nil && o.leaving[one.cluster] && !one.isOurs() && slices.Contains([]string{"", "scale"}, one.Subresource)
}
