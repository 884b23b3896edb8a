// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

// RemoveEndpoint takes the node's finalizer off a DanmEp that was just read and
// deletes it, unless another of its name has taken its place. Somebody may have
// asked for its deletion before: then it goes with the finalizer. It reports whether
// the DanmEp was still there, and returns an error that answers apierrors.IsConflict
// when it changed since the read.
func RemoveEndpoint(ctx context.Context, c client.Client, ep *v1.DanmEp) (removed bool, err error) {
	base := ep.DeepCopy()
	if controllerutil.RemoveFinalizer(ep, v1.NodeFinalizer) {
		patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, ep, patch); apierrors.IsNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("take finalizer off DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
		}
	}
	if base.DeletionTimestamp != nil {
		return true, nil
	}
	uid := base.UID
	err = c.Delete(ctx, ep, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("delete DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	return true, nil
}

// MovedFrom returns the namespace and name that a DanmEp had before the controller moved
// it out of a namespace in deletion.
func MovedFrom(ep *v1.DanmEp) (from client.ObjectKey, moved bool) {
	namespace, name, moved := strings.Cut(ep.Annotations[v1.MovedFromAnnotation], "/")
	return client.ObjectKey{Namespace: namespace, Name: name}, moved
}

// NetworkOf names the network of a DanmEp; the UID is empty when DANM wrote it.
// DANM leaves apiType empty for its first kind.
func NetworkOf(ep *v1.DanmEp) claims.Key {
	ref := network.Ref{Kind: ep.Spec.APIType, Name: ep.Spec.NetworkName}
	if ref.Kind == "" {
		ref.Kind = v1.KindDanmNet
	}
	if ref.Kind != v1.KindClusterNetwork {
		ref.Namespace = ep.Namespace
	}
	return claims.Key{Ref: ref, UID: ep.Spec.NetworkUID}
}
