// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// write makes the changes, what is new first: an endpoint that moves between slices
// is rather twice there than not at all.
func (r *Reconciler) write(ctx context.Context, c *svcwatcher.Changes) error {
	for i := range c.Create {
		if err := r.create(ctx, &c.Create[i]); err != nil {
			return err
		}
	}
	for i := range c.Update {
		r.count("endpointslices", "update")
		if err := r.direct.Update(ctx, c.Update[i].DeepCopy()); err != nil {
			return fmt.Errorf("update EndpointSlice %s: %w", c.Update[i].Name, err)
		}
	}
	for i := range c.Delete {
		r.count("endpointslices", "delete")
		if err := r.delete(ctx, c.Delete[i].DeepCopy()); err != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", c.Delete[i].Name, err)
		}
	}
	return nil
}

// create makes a slice. One of that name that is ours is not in the cache yet; one
// that is another's stays, and ours gets a name that nobody can take before.
func (r *Reconciler) create(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	r.count("endpointslices", "create")
	err := r.direct.Create(ctx, slice.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		there := &discoveryv1.EndpointSlice{}
		if err := r.direct.Get(ctx, client.ObjectKeyFromObject(slice), there); err != nil {
			return fmt.Errorf("get EndpointSlice %s: %w", slice.Name, err)
		}
		if there.Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
			return apierrors.NewConflict(discoveryv1.Resource("endpointslices"), slice.Name, err)
		}
		other := slice.DeepCopy()
		other.Name, other.GenerateName = "", slice.Name+"-"
		err = r.direct.Create(ctx, other)
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // in the latter case nobody needs it
	}
	return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
}

// delete removes an object as it was read, and no other of its name.
func (r *Reconciler) delete(ctx context.Context, obj client.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return client.IgnoreNotFound(r.direct.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

func (r *Reconciler) count(resource, verb string) {
	r.metrics.writes.WithLabelValues(resource, verb).Inc()
}
