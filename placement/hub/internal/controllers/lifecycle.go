// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// hold puts the finalizer on the object before a cluster has it.
func (p *pass) hold(ctx context.Context) error {
	if !p.alive() || controllerutil.ContainsFinalizer(p.object, v1alpha1.PlacedFinalizer) {
		return nil
	}
	return p.finalizer(ctx, controllerutil.AddFinalizer)
}

// release takes the finalizer off when no cluster has the object, and the Assignment
// away when nobody wants it placed.
func (p *pass) release(ctx context.Context) error {
	if len(p.record.Spec.Targets) > 0 || len(p.works) > 0 {
		return nil
	}
	if p.object != nil && controllerutil.ContainsFinalizer(p.object, v1alpha1.PlacedFinalizer) {
		if err := p.dropOrphans(ctx); err != nil {
			return err
		}
		if err := p.finalizer(ctx, controllerutil.RemoveFinalizer); err != nil {
			return err
		}
	}
	if p.record.UID == "" || p.alive() && (p.wish != nil || p.said.wrong) {
		return nil // an object that is nowhere says so in its Assignment
	}
	err := p.direct.Delete(ctx, p.record, client.Preconditions{UID: &p.record.UID, ResourceVersion: &p.record.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Assignment %s/%s: %w", p.record.Namespace, p.record.Name, err)
	}
	p.recent.Delete(p.key)
	return nil
}

// finalizer changes the object's finalizers, if nobody else changed the object.
func (p *pass) finalizer(ctx context.Context, change func(client.Object, string) bool) error {
	before := p.object.DeepCopy()
	if !change(p.object, v1alpha1.PlacedFinalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := p.direct.Patch(ctx, p.object, patch); err != nil {
		return fmt.Errorf("change finalizers of %s: %w", p.key, err)
	}
	return nil
}
