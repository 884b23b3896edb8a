// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// endpointReader reads from the caches what a Service's endpoints are computed from, and the slices
// and Endpoints that exist.
type endpointReader struct {
	cached client.Reader
	// direct reads from the API server.
	direct   client.Reader
	networks *networkCache
	ranges   Ranges // or nil
}

// networkStates returns what the networks of a request are to a namespace, in the request's order.
func (r *endpointReader) networkStates(ctx context.Context, request *network.ServiceRequest, namespace string) ([]networkState, error) {
	if request == nil {
		return nil, nil
	}
	states := make([]networkState, len(request.Networks))
	for i, ref := range request.Networks {
		var err error
		if states[i], err = r.networks.stateFor(ctx, ref, namespace); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// readSnapshot reads what the endpoints of a Service are computed from. A Service without a valid
// request gets no Pods.
func (r *endpointReader) readSnapshot(
	ctx context.Context, svc *corev1.Service, request *network.ServiceRequest, states []networkState,
) (*svcwatcher.Snapshot, error) {
	s := &svcwatcher.Snapshot{
		Service: svc, Request: request, Zone: func(node string) string { return r.zoneOfNode(ctx, node) },
		UsedByOtherPod: func(pod *corev1.Pod, a netip.Addr) bool { return r.usedByOtherPod(ctx, pod, a) },
	}
	if r.ranges != nil {
		ranges, err := r.ranges.Get()
		if err != nil {
			return nil, err
		}
		s.Ranges = ranges
	}
	if request == nil {
		return s, nil
	}
	s.Networks = map[network.Ref]*network.Network{}
	for i, ref := range request.Networks {
		if n := states[i].Network; n != nil && states[i].allowed {
			s.Networks[ref] = n
		}
	}
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.InNamespace(svc.Namespace), client.MatchingFields{byLabel: indexedLabel(request.Selector)},
		client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(request.Selector)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list cached Pods: %w", err)
	}
	s.Pods = pods.Items
	for i := range s.Pods {
		eps, err := r.danmEpsOfPod(ctx, svc.Namespace, s.Pods[i].Name)
		if err != nil {
			return nil, err
		}
		s.DanmEps = append(s.DanmEps, eps...)
	}
	return s, nil
}

// zoneOfNode returns the zone of a Node, or "" while there is no such Node.
func (r *endpointReader) zoneOfNode(ctx context.Context, name string) string {
	node := nodeMetadata()
	if err := r.cached.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy); err != nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// usedByOtherPod reports whether another running Pod has an address outside of our networks.
// Tenants may use equal subnets on networks of ours, but none may use an address of the Pod
// network. It covers a CNI plugin that sets no podCIDRs, whose ranges are not known. An error
// counts as used.
func (r *endpointReader) usedByOtherPod(ctx context.Context, pod *corev1.Pod, a netip.Addr) bool {
	var list corev1.PodList
	if err := r.cached.List(ctx, &list, client.MatchingFields{byIP: a.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == pod.UID || other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed {
			continue
		}
		eps, err := r.danmEpsOfPod(ctx, other.Namespace, other.Name)
		if err != nil || !slices.ContainsFunc(eps, func(ep v1.DanmEp) bool { return ep.Spec.PodUID == string(other.UID) && hasAddress(&ep, a) }) {
			return true
		}
	}
	return false
}

// hasAddress reports whether a DanmEp has an address.
func hasAddress(ep *v1.DanmEp, a netip.Addr) bool {
	for _, text := range []string{ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6} {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// podsBehindSlices returns the cached Pods that the slices name, and their DanmEps.
func (r *endpointReader) podsBehindSlices(ctx context.Context, namespace string, existing []discoveryv1.EndpointSlice) (pods []corev1.Pod, all []v1.DanmEp, err error) {
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
			eps, err := r.danmEpsOfPod(ctx, namespace, pod.Name)
			if err != nil {
				return nil, nil, err
			}
			pods, all = append(pods, pod), append(all, eps...)
		}
	}
	return pods, all, nil
}

// danmEpsOfPod returns the cached DanmEps of a Pod by its name. They must not be modified.
func (r *endpointReader) danmEpsOfPod(ctx context.Context, namespace, pod string) ([]v1.DanmEp, error) {
	var list v1.DanmEpList
	if err := r.cached.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{byPod: podBucket(pod)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached DanmEps of Pod %s: %w", pod, err)
	}
	var eps []v1.DanmEp
	for i := range list.Items {
		if list.Items[i].Spec.Pod == pod {
			eps = append(eps, list.Items[i])
		}
	}
	return eps, nil
}

// cachedSlices returns the cached slices of ours with a Service's name in their label.
func (r *endpointReader) cachedSlices(ctx context.Context, key client.ObjectKey) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.cached.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{byService: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached EndpointSlices: %w", err)
	}
	return list.Items, nil
}

// cachedLegacyEndpoints returns the cached Endpoints of ours, or nil.
func (r *endpointReader) cachedLegacyEndpoints(ctx context.Context, key client.ObjectKey) (*corev1.Endpoints, error) {
	existing := &corev1.Endpoints{}
	err := r.cached.Get(ctx, key, existing)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get cached Endpoints: %w", err)
	}
	return existing, nil
}

// isManaged asks the API server whether a Service may have slices of ours. A slice that lost the
// label with its Service's name, so that key.Name is empty, belongs to none.
func (r *endpointReader) isManaged(ctx context.Context, key client.ObjectKey) (bool, error) {
	if key.Name == "" {
		return false, nil
	}
	svc := &corev1.Service{}
	if err := r.direct.Get(ctx, key, svc); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get Service: %w", err)
	}
	class := svcwatcher.Classify(svc).Class
	return class == svcwatcher.Managed || class == svcwatcher.Invalid, nil
}
