// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// readPodPriority reads the priority of the object's Pods if a drain needs it. The API server has it in a Pod, and
// in the PriorityClass that a Pod template names. A class that the hub does not have has the priority 0.
func (r *Reader) readPodPriority(ctx context.Context, s *Scope) error {
	if s.Object == nil || !s.isDrained() {
		return nil
	}
	priority, class := render.PodPriority(s.Object)
	if priority != nil || class == "" {
		if priority != nil {
			s.PodPriority = *priority
		}
		return nil
	}
	o := kinds.Unstructured(schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"})
	err := r.direct.Get(ctx, client.ObjectKey{Name: class}, o)
	switch {
	case kinds.IsObjectNotFound(err), meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return fmt.Errorf("read PriorityClass %s: %w", class, err)
	}
	value, _, err := unstructured.NestedInt64(o.Object, "value")
	if err != nil {
		return fmt.Errorf("PriorityClass %s: %w", class, err)
	}
	s.PodPriority = int32(value)
	return nil
}

// isDrained reports whether the object is in a draining cluster, and does not leave it yet.
func (s *Scope) isDrained() bool {
	for _, t := range s.Assignment.Spec.Targets {
		if limits.IsDraining(s.Clusters[string(t.Cluster)]) && !limits.IsLeaving(t) {
			return true
		}
	}
	return false
}
