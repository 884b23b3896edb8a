// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
)

// Getter reads the metadata of the Pod that a sandbox belongs to.
type Getter struct {
	// Cached answers at once, and may be stale.
	Cached client.Reader
	// Direct reads from the API server.
	Direct client.Reader
	// Synced reports whether Cached is filled. Until then, a read of Cached blocks.
	Synced func() bool
}

// Get returns the metadata of the Pod with this UID. A cached Pod counts only with that UID,
// because a StatefulSet gives a new Pod the name of the old one. With an empty uid, as from
// runtimes that do not pass K8S_POD_UID, Get reads from the API server. The error wraps
// attach.ErrNotFound when no such Pod exists or another Pod has its name, and
// attach.ErrTryAgain when the API server does not answer.
func (g *Getter) Get(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if uid != "" && g.Synced() {
		pod := podMetadata()
		if err := g.Cached.Get(ctx, key, pod); err == nil && hasUID(pod, uid) {
			return asPod(pod), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	pod := podMetadata()
	switch err := g.Direct.Get(ctx, key, pod); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get Pod %s: %w", key, attach.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("get Pod %s: %w", key, kubeclient.AttachError(err))
	case uid != "" && !hasUID(pod, uid):
		return nil, fmt.Errorf("get Pod %s with UID %s: %w: the Pod of that name has UID %s", key, uid, attach.ErrNotFound, pod.UID)
	}
	return asPod(pod), nil
}

// getWithSpec returns the Pod with its spec from the API server. The error wraps
// attach.ErrTryAgain if the Pod is gone or was replaced since Get: kubelet ends its sandbox, or asks again.
func (g *Getter) getWithSpec(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	key, whole := client.ObjectKeyFromObject(pod), &corev1.Pod{}
	switch err := g.Direct.Get(ctx, key, whole); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get Pod %s: %w", key, attach.ErrTryAgain)
	case err != nil:
		return nil, fmt.Errorf("get Pod %s: %w", key, kubeclient.AttachError(err))
	case whole.UID != pod.UID:
		return nil, fmt.Errorf("get Pod %s with UID %s: %w: the Pod of that name has UID %s", key, pod.UID, attach.ErrTryAgain, whole.UID)
	}
	return whole, nil
}

// podMetadata returns the metadata of an empty Pod.
func podMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
}

// hasUID reports whether kubelet identifies this Pod by uid. Kubelet identifies a static Pod by
// the hash of its manifest. Its mirror Pod in the API server has the hash in an annotation that
// only kubelets may set.
func hasUID(pod metav1.Object, uid string) bool {
	return string(pod.GetUID()) == uid || pod.GetAnnotations()[corev1.MirrorPodAnnotationKey] == uid
}

// asPod returns the metadata as a Pod that the caller may change.
func asPod(m *metav1.PartialObjectMetadata) *corev1.Pod {
	return &corev1.Pod{TypeMeta: m.TypeMeta, ObjectMeta: *m.ObjectMeta.DeepCopy()}
}
