// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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

// requestLife is longer than the API server works on one request (a minute), and than
// its clock and ours differ.
const requestLife = 90 * time.Second

// protectedLately reports whether the finalizer may be younger than the request that
// deletes the object. The API server looks for finalizers when a DELETE begins; one
// that is set after that does not keep the object, which is removed at once as soon as
// admission lets it. Admission is asked about the object as it is then, so only here
// can a Pod be seen that attached meanwhile. Who set the finalizer when is in the
// managed fields; without that it may have been now.
func protectedLately(obj client.Object, now time.Time) bool {
	key := []byte(strconv.Quote("v:" + strconv.Quote(v1.InUseFinalizer)))
	for _, m := range obj.GetManagedFields() {
		if m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.GetRawBytes(), key) {
			return m.Time == nil || now.Sub(m.Time.Time) < requestLife
		}
	}
	return true
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

func dryRun(r admission.Request) bool { return r.DryRun != nil && *r.DryRun }

// attached lists the Pods on a network, by a consistent list of DanmEps.
//
// With what is held (see held) that is race-free: an address goes from the status to
// the DanmEp, so a Pod that attaches after the object was read has changed it, and
// the API server asks again about the changed one.
func attached(ctx context.Context, c client.Reader, ref network.Ref, uid string) ([]network.Use, error) {
	var uses []network.Use
	fresh := func() client.ObjectList { return &v1.DanmEpList{} }
	err := eachPage(ctx, c, fresh, func(obj client.Object) {
		ep, ok := obj.(*v1.DanmEp)
		if !ok {
			return
		}
		if key := objects.NetworkOf(ep); key.Ref == ref && (key.UID == "" || key.UID == uid) {
			uses = append(uses, useOf(ep))
		}
	}, client.InNamespace(ref.Namespace), client.MatchingFields{"spec.NetworkName": ref.Name})
	if err != nil {
		return nil, fmt.Errorf("list DanmEps of %s: %w", ref, err)
	}
	return uses, nil
}

func useOf(ep *v1.DanmEp) network.Use {
	u := network.Use{Pod: ep.Namespace + "/" + ep.Spec.Pod, Node: ep.Spec.Host}
	// An address that cannot be read is still a use.
	if found, err := objects.EndpointOf(ep); err == nil {
		u.V4, u.V6 = found.V4, found.V6
	}
	return u
}

// quarantine is the entry of addresses that answered on the wire: nobody's Pods.
const quarantine = "!quarantine"

// held lists what nodes have taken of a network for Pods to come. One use stands for
// all addresses of a node that lie outside of the DanmEps' ranges: the first and the
// last of each range are enough for a pool, which is one range too.
func held(status *v1.NetworkStatus) []network.Use {
	if status == nil || status.IPAM == nil {
		return nil
	}
	var uses []network.Use
	for node, entry := range status.IPAM.Held {
		if node == quarantine {
			continue
		}
		ends4, ends6 := ends(entry.V4), ends(entry.V6)
		for i := range max(len(ends4), len(ends6), 1) {
			u := network.Use{Node: node}
			if i < len(ends4) {
				u.V4 = ends4[i]
			}
			if i < len(ends6) {
				u.V6 = ends6[i]
			}
			uses = append(uses, u)
		}
	}
	slices.SortFunc(uses, func(a, b network.Use) int { return a.V4.Compare(b.V4) })
	return uses
}

// ends are the first and the last address of a text of ranges. The text is a node's:
// it may say "all of fd00::/8", so nothing is counted here.
func ends(text string) []netip.Addr {
	if text == "" {
		return nil
	}
	first := text[:strings.IndexAny(text+",", ",-")]
	last := text[strings.LastIndexAny(text, ",-")+1:]
	var found []netip.Addr
	for _, end := range []string{first, last} {
		if a, err := netip.ParseAddr(end); err == nil {
			found = append(found, a)
		}
	}
	return found
}
