// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// Pods finds the Pod that a sandbox belongs to. Only its metadata is filled in.
type Pods struct {
	// Cached may be stale and answers at once.
	Cached client.Reader
	// Fresh asks the API server.
	Fresh client.Reader
	// Synced says whether Cached is filled; a read of one that is not waits.
	Synced func() bool
}

// Get returns the Pod with this UID. A hit in the cache counts only with that
// UID: the new Pod of a StatefulSet has the old one's name. With an empty uid
// (runtimes before K8S_POD_UID) nothing tells a stale hit, so it reads afresh.
// The error wraps attach.ErrNotFound when no such Pod exists, or another one
// has its name.
func (p *Pods) Get(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if uid != "" && p.Synced() {
		pod := partialMetadata(podTypeMeta())
		if err := p.Cached.Get(ctx, key, pod); err == nil && hasUID(pod, uid) {
			return asPod(pod), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod := partialMetadata(podTypeMeta())
	switch err := p.Fresh.Get(ctx, key, pod); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get Pod %s: %w", key, attach.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("get Pod %s: %w", key, attachError(err))
	case uid != "" && !hasUID(pod, uid):
		return nil, fmt.Errorf("get Pod %s with UID %s: %w: the Pod of that name has UID %s", key, uid, attach.ErrNotFound, pod.UID)
	}
	return asPod(pod), nil
}

// hasUID reports whether kubelet calls this Pod by uid. A static Pod's UID is
// the hash of its manifest, which the API server's copy of it (the mirror Pod)
// carries in an annotation that only kubelets may set.
func hasUID(pod metav1.Object, uid string) bool {
	return string(pod.GetUID()) == uid || pod.GetAnnotations()[corev1.MirrorPodAnnotationKey] == uid
}

// asPod returns the metadata as a Pod that the caller may change.
func asPod(m *metav1.PartialObjectMetadata) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: *m.ObjectMeta.DeepCopy(),
	}
}
