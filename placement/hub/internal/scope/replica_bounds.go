// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// ReplicaBounds are what an autoscaler must keep to in a cluster.
type ReplicaBounds struct {
	// Min is the least number of replicas.
	Min int32
	// Exact reports that Min is the most, too: the cluster loses its replicas step by step.
	Exact bool
}

// replicaBounds returns the bounds of an autoscaler in each cluster, by the Assignments of the objects that need it: in
// a move of what it scales, no load may have reached the receiving clusters yet, and a cluster that loses replicas must
// not get them back.
func replicaBounds(o *unstructured.Unstructured, dependents []v1alpha1.Assignment) map[string]ReplicaBounds {
	if o == nil || o.GetKind() != autoscalerKind {
		return nil
	}
	bounds := map[string]ReplicaBounds{}
	for i := range dependents {
		a := &dependents[i]
		scaled := a.Spec.Object
		if a.Spec.Decision.AutoscaledReplicas == 0 || !render.Scales(o, schema.GroupKind{Group: scaled.Group, Kind: scaled.Kind}, scaled.Name) {
			continue
		}
		for _, t := range a.Spec.Targets {
			desired := ptr.Deref(t.Replicas, 0)
			n := ptr.Deref(t.RequestedReplicas, desired)
			if n > 0 && (t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetDraining) {
				bounds[string(t.Cluster)] = ReplicaBounds{Min: n, Exact: desired < n}
			}
		}
	}
	return bounds
}
