// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"maps"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// onPlacement queues all objects that the policy could be for.
func (h *hub) onPlacement(ctx context.Context, old, now *v1alpha1.Placement, q queue) {
	if old != nil && now != nil && old.Generation == now.Generation {
		return
	}
	if now == nil {
		now = old
	}
	h.queueAll(ctx, now.Namespace, q)
}

func (h *hub) onClusterPlacement(ctx context.Context, old, now *v1alpha1.ClusterPlacement, q queue) {
	if old != nil && now != nil && old.Generation == now.Generation {
		return
	}
	h.queueAll(ctx, "", q)
}

// onNamespace queues a namespace's objects when its labels change.
func (h *hub) onNamespace(ctx context.Context, old, now *metav1.PartialObjectMetadata, q queue) {
	if old == nil || now == nil || maps.Equal(old.Labels, now.Labels) {
		return
	}
	h.queueAll(ctx, now.Name, q)
}

// queueAll queues the objects of all placeable kinds, of one namespace or of all.
func (h *hub) queueAll(ctx context.Context, namespace string, q queue) {
	for _, k := range h.kinds.all() {
		if namespace != "" && !k.namespaced {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersionKind)
		list.Kind += "List"
		if err := h.cached.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Cannot list objects", "kind", k.GroupVersionKind)
			continue
		}
		for i := range list.Items {
			q.Add(Key{GroupKind: k.GroupKind(), Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
		}
	}
}

// onObject queues an object when anything but its status changes.
func onObject(k kind) func(context.Context, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata, queue) {
	return func(_ context.Context, old, now *metav1.PartialObjectMetadata, q queue) {
		if old != nil && now != nil && now.Generation != 0 && old.Generation == now.Generation && old.UID == now.UID &&
			maps.Equal(old.Labels, now.Labels) && maps.Equal(old.Annotations, now.Annotations) &&
			len(old.Finalizers) == len(now.Finalizers) && (old.DeletionTimestamp == nil) == (now.DeletionTimestamp == nil) {
			return
		}
		if now == nil {
			now = old
		}
		q.Add(Key{GroupKind: k.GroupKind(), Namespace: now.Namespace, Name: now.Name})
	}
}
