// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// pods validates the annotations of Pods that are created with one of ours. The API
// server never asks about another Pod, and lets a Pod in when nobody answers: the
// node daemon checks the same again.
type pods struct {
	reader  client.Reader
	catalog *catalog
	scheme  string
	subnets *subnets
}

// Handle implements admission.Handler.
func (h *pods) Handle(ctx context.Context, r admission.Request) admission.Response {
	var pod corev1.Pod
	if err := decodeJSON(r.Object.Raw, &pod); err != nil {
		return answer(fmt.Errorf("decode Pod %s/%s: %w", r.Namespace, r.Name, err))
	}
	look := func(ref network.Ref) *network.Network { return h.look(ctx, ref) }
	warnings, err := network.CheckPod(r.Namespace, h.scheme, pod.Annotations, look, h.subnets.isNode)
	if err != nil {
		return answer(err)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// look asks the API server about a network that the catalog does not have: a Pod is
// often created right after its network.
func (h *pods) look(ctx context.Context, ref network.Ref) *network.Network {
	if m, ok := h.catalog.get(ref); ok {
		return m.Network
	}
	obj, err := objects.New(ref.Kind)
	if err != nil {
		return nil
	}
	if err := h.reader.Get(ctx, objects.Key(ref), obj); err != nil {
		return nil
	}
	return modelOf(obj).Network
}

// services validates Services with annotations of ours.
type services struct{}

// Handle implements admission.Handler.
func (services) Handle(_ context.Context, r admission.Request) admission.Response {
	var s corev1.Service
	if err := decodeJSON(r.Object.Raw, &s); err != nil {
		return answer(fmt.Errorf("decode Service %s/%s: %w", r.Namespace, r.Name, err))
	}
	_, err := network.ParseService(r.Namespace, s.Annotations, len(s.Spec.Selector) > 0)
	return answer(err)
}
