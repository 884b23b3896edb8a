// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// networks validates ClusterNetworks, TenantNetworks and DanmNets.
type networks struct {
	reader  client.Reader
	catalog *catalog
}

// Handle implements admission.Handler.
func (h *networks) Handle(ctx context.Context, r admission.Request) admission.Response {
	switch r.Operation {
	case admissionv1.Delete:
		return answer(h.deletable(ctx, r))
	case admissionv1.Create, admissionv1.Update:
		return h.valid(ctx, r)
	}
	return admission.Allowed("")
}

// decode reads a network object of a request; nil when the request has none.
func decode(r admission.Request, raw []byte) (client.Object, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	obj, err := objects.New(r.Kind.Kind)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, obj); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", r.Kind.Kind, r.Name, err)
	}
	return obj, nil
}

// valid checks what needs other objects; what the object alone decides has been
// checked by the API server, and is again, since both run the same rules.
func (h *networks) valid(ctx context.Context, r admission.Request) admission.Response {
	if err := h.catalog.ready(); err != nil {
		return answer(err)
	}
	obj, err := decode(r, r.Object.Raw)
	if err != nil {
		return answer(err)
	}
	old, err := decode(r, r.OldObject.Raw)
	if err != nil {
		return answer(err)
	}
	if old != nil && apiequality.Semantic.DeepEqual(specOf(old), specOf(obj)) {
		return admission.Allowed("") // labels and finalizers change whatever the spec is
	}
	n, err := network.From(obj)
	if err != nil {
		return answer(err)
	}
	if err := n.Assigned(); err != nil {
		return answer(err)
	}
	if err := h.conflict(old, n); err != nil {
		return answer(err)
	}
	if err := h.change(ctx, old, n); err != nil {
		return answer(err)
	}
	return admission.Allowed("").WithWarnings(h.warnings(n)...)
}

// conflict says which other network is in the way. Who is changed counts as the
// youngest: by a change of its own, an older network would break a younger one. But
// two that are in conflict already stay what they are by age.
func (h *networks) conflict(old client.Object, n *network.Network) error {
	err := network.Conflict(youngest(n), h.catalog.rivals(n))
	if err == nil || old == nil {
		return err
	}
	if was, _ := network.From(old); was != nil && network.Conflict(youngest(was), h.catalog.rivals(was)) != nil {
		return network.Conflict(n, h.catalog.rivals(n))
	}
	return err
}

// youngest returns n as if it had not been created yet.
func youngest(n *network.Network) *network.Network {
	young := *n
	young.Created = time.Time{}
	return &young
}

// change checks that an update cuts nobody off. A stored network that is invalid may
// become valid, whatever that takes.
func (h *networks) change(ctx context.Context, old client.Object, n *network.Network) error {
	if old == nil {
		return nil
	}
	was, _ := network.From(old)
	if was == nil {
		return nil
	}
	uses, err := attached(ctx, h.reader, n.Ref, string(old.GetUID()))
	if err != nil {
		return err
	}
	return was.Change(n, append(uses, held(objects.StatusOf(old))...))
}

// deletable checks that no Pod is attached. What nodes hold for Pods to come is given
// back while the finalizer keeps the object.
func (h *networks) deletable(ctx context.Context, r admission.Request) error {
	old, err := decode(r, r.OldObject.Raw)
	if err != nil || old == nil || old.GetDeletionTimestamp() != nil {
		return err
	}
	ref := objects.RefOf(r.Kind.Kind, old)
	uses, err := attached(ctx, h.reader, ref, string(old.GetUID()))
	if err != nil {
		return err
	}
	return network.Deletable(ref, uses)
}

// warnings are for what works and may not be meant.
func (h *networks) warnings(n *network.Network) []string {
	if n.Ref.Kind == v1.KindTenantNetwork || n.VLAN == 0 && n.VXLAN == 0 {
		return nil
	}
	for _, o := range h.catalog.rivals(n) {
		if o.Ref.Kind == v1.KindTenantNetwork && placeOf(o) == placeOf(n) {
			return []string{fmt.Sprintf("%s is on the same segment, %s, as %s, which a tenant was assigned: their Pods can reach each other",
				n.Ref, placeOf(n), o.Ref)}
		}
	}
	return nil
}

func specOf(obj client.Object) *v1.NetworkSpec {
	switch o := obj.(type) {
	case *v1.ClusterNetwork:
		return &o.Spec
	case *v1.TenantNetwork:
		return &o.Spec
	case *v1.DanmNet:
		return &o.Spec
	}
	return nil
}
