// SPDX-License-Identifier: Apache-2.0

// Package informers observes the objects of informers.
package informers

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// Observe calls changed for each change of an object in an informer, which stores objects after
// trim.
func Observe(informer toolscache.SharedIndexInformer, trim toolscache.TransformFunc, changed func(metav1.Object)) error {
	if err := informer.SetTransform(trim); err != nil {
		return fmt.Errorf("set transform: %w", err)
	}
	if _, err := informer.AddEventHandler(Handler(changed)); err != nil {
		return fmt.Errorf("add handler: %w", err)
	}
	return nil
}

// Handler calls changed for each object that is added, changed or deleted.
func Handler(changed func(metav1.Object)) toolscache.ResourceEventHandler {
	handle := func(o any) {
		if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		if object, ok := o.(metav1.Object); ok {
			changed(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: handle, DeleteFunc: handle, UpdateFunc: func(before, after any) {
		a, okA := before.(metav1.Object)
		b, okB := after.(metav1.Object)
		if okA && okB && a.GetResourceVersion() == b.GetResourceVersion() {
			return // listed again, and unchanged
		}
		handle(after)
	}}
}

// TrimMetadata keeps names, versions, owners, finalizers and the deletion.
func TrimMetadata(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, OwnerReferences: m.OwnerReferences,
			Finalizers: m.Finalizers, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
		}}, nil
	}
	return o, nil
}
