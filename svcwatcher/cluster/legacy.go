// SPDX-License-Identifier: Apache-2.0

package cluster

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

// legacy makes v1 Endpoints for a Service that asks for them, and takes them from one
// that does no longer.
func (r *Reconciler) legacy(ctx context.Context, svc *corev1.Service, groups []svcwatcher.Group) error {
	there, err := r.endpoints(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return err
	}
	if !svcwatcher.WantsLegacy(svc) {
		return r.withdraw(ctx, there)
	}
	want := svcwatcher.Legacy(svc, groups)
	if there == nil {
		return r.createEndpoints(ctx, svc, want)
	}
	if equality.Semantic.DeepEqual(want.Subsets, there.Subsets) && equality.Semantic.DeepEqual(want.Labels, there.Labels) &&
		equality.Semantic.DeepEqual(want.OwnerReferences, there.OwnerReferences) {
		return nil
	}
	want.UID, want.ResourceVersion = there.UID, there.ResourceVersion
	r.count("endpoints", "update")
	if err := r.direct.Update(ctx, want); err != nil {
		return fmt.Errorf("update Endpoints: %w", err)
	}
	return nil
}

// createEndpoints makes Endpoints. They have the Service's name, so that others'
// cannot be avoided: they stay, and an Event says so. Ours are not in the cache yet.
func (r *Reconciler) createEndpoints(ctx context.Context, svc *corev1.Service, want *corev1.Endpoints) error {
	r.count("endpoints", "create")
	err := r.direct.Create(ctx, want)
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		there := &corev1.Endpoints{}
		if err := r.direct.Get(ctx, client.ObjectKeyFromObject(want), there); err != nil {
			return fmt.Errorf("get Endpoints: %w", err)
		}
		if there.Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
			return apierrors.NewConflict(corev1.Resource("endpoints"), want.Name, err)
		}
	}
	err = fmt.Errorf("create Endpoints: %w", err)
	r.tellRefusal(svc, err)
	return err
}

// endpoints returns the cached Endpoints of ours, or nil.
func (r *Reconciler) endpoints(ctx context.Context, key client.ObjectKey) (*corev1.Endpoints, error) {
	there := &corev1.Endpoints{}
	err := r.cached.Get(ctx, key, there)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get cached Endpoints: %w", err)
	}
	return there, nil
}

// withdraw deletes Endpoints of ours, if there are any.
func (r *Reconciler) withdraw(ctx context.Context, there *corev1.Endpoints) error {
	if there == nil {
		return nil
	}
	r.count("endpoints", "delete")
	if err := r.delete(ctx, there); err != nil {
		return fmt.Errorf("delete Endpoints: %w", err)
	}
	return nil
}
