// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// endpointWriter writes EndpointSlices and Endpoints. Each write names the version that it was
// planned from, so that a stale plan fails with a conflict.
type endpointWriter struct {
	client  client.Client
	metrics *Metrics
}

// applyChanges writes the changes. It creates slices first and deletes last, so that an endpoint
// that moves to another slice is briefly in both rather than in none.
func (w *endpointWriter) applyChanges(ctx context.Context, c *svcwatcher.Changes) error {
	for i := range c.Create {
		if err := w.createSlice(ctx, &c.Create[i]); err != nil {
			return err
		}
	}
	for i := range c.Update {
		w.countWrite("endpointslices", "update")
		if err := w.client.Update(ctx, c.Update[i].DeepCopy()); err != nil {
			return fmt.Errorf("update EndpointSlice %s: %w", c.Update[i].Name, err)
		}
	}
	for i := range c.Delete {
		w.countWrite("endpointslices", "delete")
		if err := w.deleteUnchanged(ctx, c.Delete[i].DeepCopy()); err != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", c.Delete[i].Name, err)
		}
	}
	return nil
}

// createSlice creates a slice. If a slice of that name exists and is ours, the cache was behind,
// which is a conflict. If it is another owner's, ours gets a generated name.
func (w *endpointWriter) createSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	w.countWrite("endpointslices", "create")
	err := w.client.Create(ctx, slice.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		existing := &discoveryv1.EndpointSlice{}
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(slice), existing); err != nil {
			return fmt.Errorf("get EndpointSlice %s: %w", slice.Name, err)
		}
		if existing.Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
			return apierrors.NewConflict(discoveryv1.Resource("endpointslices"), slice.Name, err)
		}
		other := slice.DeepCopy()
		other.Name, other.GenerateName = "", slice.Name+"-"
		err = w.client.Create(ctx, other)
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // a namespace in deletion needs no slice
	}
	return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
}

// createLegacyEndpoints creates Endpoints. They have the Service's name, so that Endpoints of another
// owner make it fail with AlreadyExists. Endpoints of ours that are not in the cache yet are a
// conflict, which is retried.
func (w *endpointWriter) createLegacyEndpoints(ctx context.Context, want *corev1.Endpoints) error {
	w.countWrite("endpoints", "create")
	err := w.client.Create(ctx, want)
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		existing := &corev1.Endpoints{}
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(want), existing); err != nil {
			return fmt.Errorf("get Endpoints: %w", err)
		}
		if existing.Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
			return apierrors.NewConflict(corev1.Resource("endpoints"), want.Name, err)
		}
	}
	return fmt.Errorf("create Endpoints: %w", err)
}

// updateLegacyEndpoints replaces existing Endpoints of ours if they differ from want.
func (w *endpointWriter) updateLegacyEndpoints(ctx context.Context, want, existing *corev1.Endpoints) error {
	if equality.Semantic.DeepEqual(want.Subsets, existing.Subsets) && equality.Semantic.DeepEqual(want.Labels, existing.Labels) &&
		equality.Semantic.DeepEqual(want.OwnerReferences, existing.OwnerReferences) {
		return nil
	}
	want.UID, want.ResourceVersion = existing.UID, existing.ResourceVersion
	w.countWrite("endpoints", "update")
	if err := w.client.Update(ctx, want); err != nil {
		return fmt.Errorf("update Endpoints: %w", err)
	}
	return nil
}

// deleteLegacyEndpoints deletes Endpoints of ours; nil for none.
func (w *endpointWriter) deleteLegacyEndpoints(ctx context.Context, existing *corev1.Endpoints) error {
	if existing == nil {
		return nil
	}
	w.countWrite("endpoints", "delete")
	if err := w.deleteUnchanged(ctx, existing); err != nil {
		return fmt.Errorf("delete Endpoints: %w", err)
	}
	return nil
}

// deleteUnchanged deletes an object if it is still at the version that was read.
func (w *endpointWriter) deleteUnchanged(ctx context.Context, obj client.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return client.IgnoreNotFound(w.client.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

func (w *endpointWriter) countWrite(resource, verb string) {
	w.metrics.writes.WithLabelValues(resource, verb).Inc()
}
