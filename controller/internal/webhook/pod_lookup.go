// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// maxPodLookups bounds the Pods that one deletion looks up. The deletion of a network with more Pods
// than this waits for none of them.
const maxPodLookups = 16

// podLookup finds out which DanmEps belong to Pods that were deleted. It remembers them, because such a
// Pod never comes back: another Pod of its name has another DanmEp.
type podLookup struct {
	reader  client.Reader
	deleted map[client.ObjectKey]struct{} // DanmEps
}

// firstAttached returns the first DanmEp that its node does not remove by itself, nil for none. An
// error of a lookup means that the Pod may exist.
func (l *podLookup) firstAttached(ctx context.Context, eps []*v1.DanmEp) *v1.DanmEp {
	for _, ep := range eps {
		key := client.ObjectKeyFromObject(ep)
		if _, known := l.deleted[key]; known {
			continue
		}
		if len(l.deleted) == maxPodLookups || !l.isDeleted(ctx, ep) {
			return ep
		}
		if l.deleted == nil {
			l.deleted = map[client.ObjectKey]struct{}{}
		}
		l.deleted[key] = struct{}{}
	}
	return nil
}

// isDeleted reports whether a node daemon has written a DanmEp, and it or its Pod was deleted: then that daemon
// removes it.
func (l *podLookup) isDeleted(ctx context.Context, ep *v1.DanmEp) bool {
	if ep.Spec.NetworkUID == "" {
		return false
	}
	if ep.DeletionTimestamp != nil {
		return true
	}
	pod, err := podOf(ctx, l.reader, ep)
	return apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil
}

// podOf reads the metadata of a DanmEp's Pod.
func podOf(ctx context.Context, c client.Reader, ep *v1.DanmEp) (*metav1.PartialObjectMetadata, error) {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod, c.Get(ctx, client.ObjectKey{Namespace: ep.Namespace, Name: ep.Spec.Pod}, pod)
}
