// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// podValidator validates our annotations on new Pods. The API server calls it for Pods with such an
// annotation only, and admits a Pod when no replica answers: the node daemon checks the same again.
type podValidator struct {
	reader       client.Reader
	index        *networkIndex
	namingScheme string
	subnets      *subnetValidator
}

// Handle implements admission.Handler.
func (h *podValidator) Handle(ctx context.Context, r admission.Request) admission.Response {
	var pod corev1.Pod
	if err := decodeJSON(r.Object.Raw, &pod); err != nil {
		return responseFor(fmt.Errorf("decode Pod %s/%s: %w", r.Namespace, r.Name, err))
	}
	lookUp := func(ref network.Ref) *network.Network { return h.lookUpNetwork(ctx, ref) }
	warnings, err := network.CheckPod(r.Namespace, h.namingScheme, pod.Annotations, lookUp, h.subnets.isNodeAddress)
	if err != nil {
		return responseFor(err)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// lookUpNetwork returns a network from the index, or from the API server: a Pod is often created
// right after its network.
func (h *podValidator) lookUpNetwork(ctx context.Context, ref network.Ref) *network.Network {
	if m, ok := h.index.get(ref); ok {
		return m.Network
	}
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return nil
	}
	if err := h.reader.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return nil
	}
	return parseStored(obj).Network
}

// serviceValidator validates our annotations on Services.
type serviceValidator struct{}

// Handle implements admission.Handler.
func (serviceValidator) Handle(_ context.Context, r admission.Request) admission.Response {
	var s corev1.Service
	if err := decodeJSON(r.Object.Raw, &s); err != nil {
		return responseFor(fmt.Errorf("decode Service %s/%s: %w", r.Namespace, r.Name, err))
	}
	_, err := network.ParseService(r.Namespace, s.Annotations, len(s.Spec.Selector) > 0)
	return responseFor(err)
}
