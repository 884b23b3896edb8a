// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// Objects writes the users' objects at the hub: their finalizer, and their status.
type Objects struct {
	// Direct is the API server.
	Direct client.Client
}

// AddFinalizer adds the finalizer to an object that is not being deleted. It returns the object as
// stored then. Clusters get an object only after that.
func (o *Objects) AddFinalizer(ctx context.Context, s *scope.Scope) (*unstructured.Unstructured, error) {
	if !s.Alive() || controllerutil.ContainsFinalizer(s.Object, v1alpha1.PlacedFinalizer) {
		return s.Object, nil
	}
	next := s.Object.DeepCopy()
	controllerutil.AddFinalizer(next, v1alpha1.PlacedFinalizer)
	return o.patchFinalizers(ctx, s, s.Object, next)
}

// RemoveFinalizer removes the finalizer from a stored object, and returns the object as stored then.
func (o *Objects) RemoveFinalizer(ctx context.Context, s *scope.Scope, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	next := stored.DeepCopy()
	if !controllerutil.RemoveFinalizer(next, v1alpha1.PlacedFinalizer) {
		return stored, nil
	}
	return o.patchFinalizers(ctx, s, stored, next)
}

// patchFinalizers fails with a conflict if another client has changed the object meanwhile.
func (o *Objects) patchFinalizers(ctx context.Context, s *scope.Scope, stored, next *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
	if err := o.Direct.Patch(ctx, next, patch); err != nil {
		return nil, fmt.Errorf("change finalizers of %s: %w", s.Key, err)
	}
	return next, nil
}

// WriteStatus replaces the status of a stored object, and returns the object as stored then.
func (o *Objects) WriteStatus(ctx context.Context, s *scope.Scope, stored *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error) {
	next := stored.DeepCopy()
	next.Object["status"] = status
	if err := o.Direct.Status().Update(ctx, next); err != nil {
		return nil, fmt.Errorf("write status of %s: %w", s.Key, err)
	}
	return next, nil
}

// Evict deletes a Pod that was deleted in its cluster, as an eviction would: its owner creates
// another one. The agent never creates the same Pod again.
func (o *Objects) Evict(ctx context.Context, s *scope.Scope, stored *unstructured.Unstructured) error {
	if stored == nil || stored.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := stored.GetUID()
	err := o.Direct.Delete(ctx, stored, client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s, which was deleted in its cluster: %w", s.Key, err)
	}
	return nil
}
