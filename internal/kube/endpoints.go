// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// EndpointOf parses the addresses of a DanmEp. An unreadable address is an error, because to ignore
// it would free an address in use.
func EndpointOf(ep *v1.DanmEp) (status.Endpoint, error) {
	v4, err := parseAddress(ep.Spec.Interface.Address)
	if err != nil {
		return status.Endpoint{}, fmt.Errorf("spec.Interface.Address of DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	v6, err := parseAddress(ep.Spec.Interface.AddressIPv6)
	if err != nil {
		return status.Endpoint{}, fmt.Errorf("spec.Interface.AddressIPv6 of DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	return status.Endpoint{
		Namespace: ep.Namespace, Name: ep.Name, UID: string(ep.UID), Pod: ep.Spec.Pod, PodUID: ep.Spec.PodUID,
		NetworkUID: ep.Spec.NetworkUID, Node: ep.Spec.Host, ID: ep.Spec.EndpointID, V4: v4, V6: v6,
	}, nil
}

// parseAddress parses an address with or without prefix length. DANM writes "none" for an interface
// without an address.
func parseAddress(s string) (netip.Addr, error) {
	if s == "" || s == "none" {
		return netip.Addr{}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr(), nil
	}
	return netip.ParseAddr(s)
}

// NetworkKeyOf returns the network of a DanmEp. The UID is empty when DANM wrote the DanmEp; DANM
// leaves apiType empty for DanmNets.
func NetworkKeyOf(ep *v1.DanmEp) network.Key {
	ref := network.Ref{Kind: ep.Spec.APIType, Name: ep.Spec.NetworkName}
	if ref.Kind == "" {
		ref.Kind = v1.KindDanmNet
	}
	if ref.Kind != v1.KindClusterNetwork {
		ref.Namespace = ep.Namespace
	}
	return network.Key{Ref: ref, UID: ep.Spec.NetworkUID}
}

// MovedFrom returns the namespace and name of a DanmEp before the controller moved it out of a
// namespace in deletion; false for one that was not moved.
func MovedFrom(ep *v1.DanmEp) (from client.ObjectKey, moved bool) {
	namespace, name, moved := strings.Cut(ep.Annotations[v1.MovedFromAnnotation], "/")
	return client.ObjectKey{Namespace: namespace, Name: name}, moved
}

// PodKeyOf returns the namespace and name of a DanmEp's Pod.
func PodKeyOf(ep *v1.DanmEp) client.ObjectKey {
	key := client.ObjectKey{Namespace: ep.Namespace, Name: ep.Spec.Pod}
	if from, moved := MovedFrom(ep); moved {
		key.Namespace = from.Namespace
	}
	return key
}

// PodOf reads the metadata of a DanmEp's Pod. It returns nil if the Pod does not exist, or another one has its
// name. The UID of a static Pod is in the annotation of its mirror Pod. DANM writes no UID of a Pod, so
// that any Pod of the name is the one.
func PodOf(ctx context.Context, c client.Reader, ep *v1.DanmEp) (*metav1.PartialObjectMetadata, error) {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	key, uid := PodKeyOf(ep), ep.Spec.PodUID
	if err := c.Get(ctx, key, pod); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Pod %s: %w", key, err)
	}
	if uid != "" && string(pod.UID) != uid && pod.Annotations[corev1.MirrorPodAnnotationKey] != uid {
		return nil, nil
	}
	return pod, nil
}

// RemoveEndpoint removes the node's finalizer from a DanmEp that was just read and deletes it,
// unless another one has its name. It reports whether the DanmEp still existed. Its error satisfies
// apierrors.IsConflict when the DanmEp has changed since it was read.
func RemoveEndpoint(ctx context.Context, c client.Client, ep *v1.DanmEp) (removed bool, err error) {
	base := ep.DeepCopy()
	if controllerutil.RemoveFinalizer(ep, v1.NodeFinalizer) {
		patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, ep, patch); apierrors.IsNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("remove finalizer of DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
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
