// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
)

// watchReports feeds a Tracker with all events of Works and heartbeats.
func watchReports(ctx context.Context, informers cache.Informers, tracker *reports.Tracker, rooms *limits.Rooms) error {
	if err := watchEach(ctx, informers, &v1alpha1.Work{}, tracker.ObserveWork, tracker.ForgetWork); err != nil {
		return err
	}
	if err := watchEach(ctx, informers, &v1alpha1.Cluster{}, rooms.Observe, rooms.Forget); err != nil {
		return err
	}
	return watchEach(ctx, informers, &coordinationv1.Lease{}, tracker.ObserveLease, tracker.ForgetLease)
}

// watchEach calls changed for each object that is added or changed, and deleted for each that is deleted.
func watchEach[O client.Object](ctx context.Context, informers cache.Informers, kind O, changed, deleted func(O)) error {
	informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if object, ok := o.(O); ok {
				changed(object)
			}
		},
		UpdateFunc: func(_, o any) {
			if object, ok := o.(O); ok {
				changed(object)
			}
		},
		DeleteFunc: func(o any) {
			if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			if object, ok := o.(O); ok {
				deleted(object)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	return nil
}
