// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// source reads from the caches what a Service's endpoints are made from, and tells
// what its networks are to it.
func (r *Reconciler) source(ctx context.Context, svc *corev1.Service, j svcwatcher.Judgement) (*svcwatcher.Source, error) {
	s := &svcwatcher.Source{
		Service: svc, Request: j.Request, Zone: func(node string) string { return r.zone(ctx, node) },
		Foreign: func(pod *corev1.Pod, a netip.Addr) bool { return r.foreign(ctx, pod, a) },
	}
	if r.cfg.Ranges != nil {
		ranges, err := r.cfg.Ranges.Get()
		if err != nil {
			return nil, err
		}
		s.Ranges = ranges
	}
	if j.Request == nil {
		return s, nil
	}
	s.Networks = map[network.Ref]*network.Network{}
	for _, ref := range j.Request.Networks {
		at, err := r.networks.look(ctx, ref, svc.Namespace)
		if err != nil {
			return nil, err
		}
		if at.Network != nil && at.allowed {
			s.Networks[ref] = at.Network
		}
		r.tellStanding(svc, ref, at)
	}
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.InNamespace(svc.Namespace), client.MatchingFields{byLabel: pick(j.Request.Selector)},
		client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(j.Request.Selector)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list cached Pods: %w", err)
	}
	s.Pods = pods.Items
	for i := range s.Pods {
		eps, err := r.danmEps(ctx, svc.Namespace, s.Pods[i].Name)
		if err != nil {
			return nil, err
		}
		s.DanmEps = append(s.DanmEps, eps...)
	}
	return s, nil
}

// foreign reports whether another living Pod has an address, and not on a network of ours:
// tenants may have the same subnets, but none has the Pods' own. It finds what no range
// says, with a CNI plugin that sets no podCIDRs.
func (r *Reconciler) foreign(ctx context.Context, pod *corev1.Pod, a netip.Addr) bool {
	var list corev1.PodList
	if err := r.cached.List(ctx, &list, client.MatchingFields{byIP: a.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == pod.UID || other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed {
			continue
		}
		eps, err := r.danmEps(ctx, other.Namespace, other.Name)
		if err != nil || !slices.ContainsFunc(eps, func(ep v1.DanmEp) bool { return ep.Spec.PodUID == string(other.UID) && has(&ep, a) }) {
			return true
		}
	}
	return false
}

// has reports whether a DanmEp has an address.
func has(ep *v1.DanmEp, a netip.Addr) bool {
	for _, text := range []string{ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6} {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// podsOf reads the Pods that are behind slices now.
func (r *Reconciler) podsOf(ctx context.Context, namespace string, existing []discoveryv1.EndpointSlice) (pods []corev1.Pod, all []v1.DanmEp, err error) {
	seen := map[string]bool{}
	for i := range existing {
		for _, e := range existing[i].Endpoints {
			if e.TargetRef == nil || seen[e.TargetRef.Name] {
				continue
			}
			seen[e.TargetRef.Name] = true
			var pod corev1.Pod
			err := r.cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.TargetRef.Name}, &pod)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, nil, fmt.Errorf("get cached Pod %s: %w", e.TargetRef.Name, err)
			}
			eps, err := r.danmEps(ctx, namespace, pod.Name)
			if err != nil {
				return nil, nil, err
			}
			pods, all = append(pods, pod), append(all, eps...)
		}
	}
	return pods, all, nil
}

// slices returns the cached slices of ours that bear a Service's name.
func (r *Reconciler) slices(ctx context.Context, key client.ObjectKey) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.cached.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{byService: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached EndpointSlices: %w", err)
	}
	return list.Items, nil
}

// zone is a Node's, or nothing while there is no such Node.
func (r *Reconciler) zone(ctx context.Context, name string) string {
	node := nodeMeta()
	if err := r.cached.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy); err != nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// nodeMeta is an empty Node as metadata.
func nodeMeta() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}
