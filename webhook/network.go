// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"slices"
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
	presser *presser
	subnets *subnets
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
	if err := decodeJSON(raw, obj); err != nil {
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
	before := modelBefore(old)
	if err := h.subnets.check(ctx, n, before); err != nil {
		return answer(about(n.Ref, err))
	}
	if err := h.change(ctx, old, before, n, dryRun(r)); err != nil {
		return answer(err)
	}
	if err := h.catalog.admit(before, n, dryRun(r), time.Now()); err != nil {
		return answer(err)
	}
	return admission.Allowed("").WithWarnings(slices.Concat(h.warnings(n), h.untagged(ctx, n), h.subnets.warnings(n))...)
}

func dryRun(r admission.Request) bool { return r.DryRun != nil && *r.DryRun }

// modelBefore is what an object meant before its change; nil for a new one, and for one
// that is invalid: it may become valid, whatever that takes.
func modelBefore(old client.Object) *network.Network {
	if old == nil {
		return nil
	}
	n, _ := network.From(old)
	return n
}

// change checks that an update cuts nobody off. Where only addresses are in the way
// that nodes keep for Pods to come, the nodes are asked to give them back, and the next
// try may do.
func (h *networks) change(ctx context.Context, old client.Object, before, n *network.Network, dryRun bool) error {
	if before == nil {
		return nil
	}
	uses, err := attached(ctx, h.reader, n.Ref, string(old.GetUID()))
	if err != nil {
		return err
	}
	if err := before.Change(n, uses); err != nil {
		return err
	}
	err = before.Change(n, held(objects.StatusOf(old)))
	if err != nil && !dryRun {
		h.presser.ask(old)
	}
	return err
}

// deletable checks that no Pod is attached. What nodes hold for Pods to come is given
// back while the finalizer keeps the object: unless the finalizer is so young that the
// API server may not have seen it.
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
	if err := network.Deletable(ref, uses); err != nil {
		return err
	}
	if !protectedLately(old, time.Now()) {
		return nil
	}
	err = network.Deletable(ref, held(objects.StatusOf(old)))
	if err != nil && !dryRun(r) {
		h.presser.ask(old)
	}
	return err
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

// untagged warns of networks that reach what TenantConfigs give to tenants.
func (h *networks) untagged(ctx context.Context, n *network.Network) (warnings []string) {
	if id, ok := n.Link(); !ok || !id.IsNIC() || n.Ref.Kind == v1.KindTenantNetwork {
		return nil // a tenant's device was chosen by a TenantConfig
	}
	var list v1.TenantConfigList
	if err := h.reader.List(ctx, &list); err != nil {
		return []string{fmt.Sprintf("whether tenants have VLANs on host_device %s is not known: list TenantConfigs: %v", n.Device, err)}
	}
	for i := range list.Items {
		t, err := network.FromTenantConfig(&list.Items[i])
		if err != nil {
			continue // an object that is older than a rule gives nothing to tenants
		}
		if w := t.Untagged(n); w != "" {
			warnings = append(warnings, w)
		}
	}
	return warnings
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
