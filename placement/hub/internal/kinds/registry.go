// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Kind is a placeable kind, as the API server serves it.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the plural name in URLs.
	Resource string
	// Namespaced reports whether its objects are in namespaces.
	Namespaced bool
	// HasStatus reports whether it has a status subresource.
	HasStatus bool
}

// Registry holds the placeable kinds that the API server serves at present.
type Registry struct {
	mu     sync.RWMutex
	served map[schema.GroupKind]Kind // nil: not discovered yet
}

// Discovered reports whether the kinds have been discovered once.
func (r *Registry) Discovered() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.served != nil
}

// Get returns a kind, and whether it is placeable and served.
func (r *Registry) Get(gk schema.GroupKind) (Kind, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.served[gk]
	return k, ok
}

// All returns all kinds, in no particular order.
func (r *Registry) All() []Kind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]Kind, 0, len(r.served))
	for _, k := range r.served {
		list = append(list, k)
	}
	return list
}

// Replace stores the kinds that are served now. It returns those that are new and those that are
// gone. A kind that is served in another version than before is both.
func (r *Registry) Replace(served map[schema.GroupKind]Kind) (added, removed []Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for gk, now := range served {
		if before, ok := r.served[gk]; !ok || before.GroupVersionKind != now.GroupVersionKind {
			added = append(added, now)
		}
	}
	for gk, before := range r.served {
		if now, ok := served[gk]; !ok || before.GroupVersionKind != now.GroupVersionKind {
			removed = append(removed, before)
		}
	}
	r.served = served
	return added, removed
}

// Forget drops a kind, so that the next Replace returns it as new.
func (r *Registry) Forget(gk schema.GroupKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.served, gk)
}

// ListRetry is when to check again whether the objects of a kind are listed.
const ListRetry = 5 * time.Second

// IsListed reports whether the cache has all objects of a kind. It may never have them, for example
// when a conversion webhook does not answer or an object cannot be decrypted. A read from the
// cache would block until then.
func IsListed(ctx context.Context, informers cache.Informers, k Kind) bool {
	informer, err := informers.GetInformer(ctx, Metadata(k.GroupVersionKind), cache.BlockUntilSynced(false))
	return err == nil && informer.HasSynced()
}

// Metadata returns an empty object of a kind for reads of metadata only.
func Metadata(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

// NamespaceMetadata returns an empty Namespace for reads of metadata only.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	return Metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))
}

// Unstructured returns an empty object of a kind for reads of whole objects.
func Unstructured(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}

// IsObjectNotFound reports whether an error says that the object does not exist. The API server
// also answers 404 for a kind that it does not serve, such as a version that was switched off or
// an extension API server that is away. That answer proves nothing about the object.
func IsObjectNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
