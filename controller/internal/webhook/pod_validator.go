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

// podValidator validates the annotations of Pods that are created with one of ours. The API
// server never asks about another Pod, and lets a Pod in when nobody answers: the
// node daemon checks the same again.
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
	look := func(ref network.Ref) *network.Network { return h.lookUpNetwork(ctx, ref) }
	warnings, err := network.CheckPod(r.Namespace, h.namingScheme, pod.Annotations, look, h.subnets.isNodeAddress)
	if err != nil {
		return responseFor(err)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// lookUpNetwork asks the API server about a network that the catalog does not have: a Pod is
// often created right after its network.
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
	return modelOf(obj).Network
}

// serviceValidator validates Services with annotations of ours.
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
