// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newer says that the spec is another.
func newer[T client.Object](old, now T) bool { return old.GetGeneration() != now.GetGeneration() }

// differs says that a decision may depend on what has changed of a Cluster.
func differs(old, now *v1alpha1.Cluster) bool {
	return newer(old, now) || !maps.Equal(old.Labels, now.Labels) || !maps.Equal(old.Annotations, now.Annotations) ||
		reachable(old) != reachable(now)
}

// relabelled says that other policies may select what is in a namespace.
func relabelled(old, now *metav1.PartialObjectMetadata) bool {
	return !maps.Equal(old.Labels, now.Labels)
}

// respecified is for kinds whose generations the API server does not count.
func respecified(old, now *unstructured.Unstructured) bool {
	return !same(old.Object["spec"], now.Object["spec"])
}

// edited says that more of an object has changed than its status, or that somebody took
// our finalizer.
func edited(old, now *metav1.PartialObjectMetadata) bool {
	held := func(o *metav1.PartialObjectMetadata) bool {
		return slices.Contains(o.Finalizers, v1alpha1.PlacedFinalizer)
	}
	return now.Generation == 0 || newer(old, now) || old.UID != now.UID || relabelled(old, now) ||
		!maps.Equal(old.Annotations, now.Annotations) || held(old) && !held(now) ||
		(old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil)
}

// assigned are the objects that have an Assignment, of one namespace or of all.
func (h *hub) assigned(ctx context.Context, namespace string) (keys []Key) {
	var list v1alpha1.AssignmentList
	if err := h.cached.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot list Assignments")
	}
	for i := range list.Items {
		keys = append(keys, keyOf(list.Items[i].Spec.Object))
	}
	return keys
}

// listed says that the cache has all objects of a kind. It may never have them: when a conversion
// webhook does not answer, or an object cannot be decrypted. A look into the cache would wait for
// that.
func (h *hub) listed(ctx context.Context, k kind) bool {
	informer, err := h.cached.GetInformer(ctx, metadata(k.GroupVersionKind), cache.BlockUntilSynced(false))
	return err == nil && informer.HasSynced()
}

// all are the objects of all placeable kinds, of one namespace or of all.
func (h *hub) all(ctx context.Context, namespace string) (keys []Key) {
	for _, k := range h.kinds.all() {
		if namespace != "" && !k.namespaced {
			continue
		}
		if !h.listed(ctx, k) { // its objects come by themselves when it can be
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersionKind)
		list.Kind += "List"
		if err := h.cached.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Cannot list objects", "kind", k.GroupVersionKind)
		}
		for i := range list.Items {
			keys = append(keys, Key{GroupKind: k.GroupKind(), Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
		}
	}
	return keys
}
