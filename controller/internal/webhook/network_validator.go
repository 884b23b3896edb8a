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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkValidator validates ClusterNetworks, TenantNetworks and DanmNets.
type networkValidator struct {
	reader   client.Reader
	index    *networkIndex
	reclaims *reclaimRequester
	subnets  *subnetValidator
}

// Handle implements admission.Handler.
func (h *networkValidator) Handle(ctx context.Context, r admission.Request) admission.Response {
	switch r.Operation {
	case admissionv1.Delete:
		return responseFor(h.validateDelete(ctx, r))
	case admissionv1.Create, admissionv1.Update:
		return h.validate(ctx, r)
	}
	return admission.Allowed("")
}

// validate checks what needs other objects; what the object alone decides has been
// checked by the API server, and is again, since both run the same rules.
func (h *networkValidator) validate(ctx context.Context, r admission.Request) admission.Response {
	if err := h.index.checkSynced(); err != nil {
		return responseFor(err)
	}
	obj, err := decodeNetwork(r, r.Object.Raw)
	if err != nil {
		return responseFor(err)
	}
	old, err := decodeNetwork(r, r.OldObject.Raw)
	if err != nil {
		return responseFor(err)
	}
	if old != nil && apiequality.Semantic.DeepEqual(specOf(old), specOf(obj)) {
		return admission.Allowed("") // labels and finalizers change whatever the spec is
	}
	n, err := network.FromObject(obj)
	if err != nil {
		return responseFor(err)
	}
	if err := n.CheckAssignment(); err != nil {
		return responseFor(err)
	}
	before := oldNetwork(old)
	if err := h.subnets.validate(ctx, n, before); err != nil {
		return responseFor(withSubject(n.Ref, err))
	}
	if err := h.validateUpdate(ctx, old, before, n, isDryRun(r)); err != nil {
		return responseFor(err)
	}
	if err := h.index.admit(before, n, isDryRun(r), time.Now()); err != nil {
		return responseFor(err)
	}
	return admission.Allowed("").WithWarnings(slices.Concat(h.segmentWarnings(n), h.untaggedWarnings(ctx, n), h.subnets.warnings(n))...)
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

// oldNetwork is what an object meant before its change; nil for a new one, and for one
// that is invalid: it may become valid, whatever that takes.
func oldNetwork(old client.Object) *network.Network {
	if old == nil {
		return nil
	}
	n, _ := network.FromObject(old)
	return n
}

// validateUpdate checks that an update cuts nobody off. Where only addresses are in the way
// that nodes keep for Pods to come, the nodes are asked to give them back, and the next
// try may do.
func (h *networkValidator) validateUpdate(ctx context.Context, old client.Object, before, n *network.Network, dryRun bool) error {
	if before == nil {
		return nil
	}
	uses, err := podUses(ctx, h.reader, n.Ref, string(old.GetUID()))
	if err != nil {
		return err
	}
	if err := before.CheckUpdate(n, uses); err != nil {
		return err
	}
	err = before.CheckUpdate(n, preallocatedUses(kube.NetworkStatusOf(old)))
	if err != nil && !dryRun {
		h.reclaims.enqueue(old)
	}
	return err
}

// segmentWarnings are for what works and may not be meant.
func (h *networkValidator) segmentWarnings(n *network.Network) []string {
	if n.Ref.Kind == v1.KindTenantNetwork || n.VLAN == 0 && n.VXLAN == 0 {
		return nil
	}
	for _, o := range h.index.contenders(n) {
		if o.Ref.Kind == v1.KindTenantNetwork && placeOf(o) == placeOf(n) {
			return []string{fmt.Sprintf("%s is on the same segment, %s, as %s, which a tenant was assigned: their Pods can reach each other",
				n.Ref, placeOf(n), o.Ref)}
		}
	}
	return nil
}

// untaggedWarnings warns of networks that reach what TenantConfigs give to tenants.
func (h *networkValidator) untaggedWarnings(ctx context.Context, n *network.Network) (warnings []string) {
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
		if w := t.UntaggedWarning(n); w != "" {
			warnings = append(warnings, w)
		}
	}
	return warnings
}

// validateDelete checks that no Pod is attached. What nodes hold for Pods to come is given
// back while the finalizer keeps the object: unless the finalizer is so young that the
// API server may not have seen it.
func (h *networkValidator) validateDelete(ctx context.Context, r admission.Request) error {
	old, err := decodeNetwork(r, r.OldObject.Raw)
	if err != nil || old == nil || old.GetDeletionTimestamp() != nil {
		return err
	}
	ref := kube.NetworkRefOf(r.Kind.Kind, old)
	uses, err := podUses(ctx, h.reader, ref, string(old.GetUID()))
	if err != nil {
		return err
	}
	if err := network.CheckDelete(ref, uses); err != nil {
		return err
	}
	if !finalizerRecentlyAdded(old, time.Now()) {
		return nil
	}
	err = network.CheckDelete(ref, preallocatedUses(kube.NetworkStatusOf(old)))
	if err != nil && !isDryRun(r) {
		h.reclaims.enqueue(old)
	}
	return err
}

// maxRequestDuration is longer than the API server works on one request (a minute), and than
// its clock and ours differ.
const maxRequestDuration = 90 * time.Second

// finalizerRecentlyAdded reports whether the finalizer may be younger than the request that
// deletes the object. The API server looks for finalizers when a DELETE begins; one
// that is set after that does not keep the object, which is removed at once as soon as
// admission lets it. Admission is asked about the object as it is then, so only here
// can a Pod be seen that attached meanwhile. Who set the finalizer when is in the
// managed fields; without that it may have been now.
func finalizerRecentlyAdded(obj client.Object, now time.Time) bool {
	key := []byte(strconv.Quote("v:" + strconv.Quote(v1.InUseFinalizer)))
	for _, m := range obj.GetManagedFields() {
		if m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.GetRawBytes(), key) {
			return m.Time == nil || now.Sub(m.Time.Time) < maxRequestDuration
		}
	}
	return true
}

// decodeNetwork reads a network object of a request; nil when the request has none.
func decodeNetwork(r admission.Request, raw []byte) (client.Object, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	obj, err := kube.NewNetwork(r.Kind.Kind)
	if err != nil {
		return nil, err
	}
	if err := decodeJSON(raw, obj); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", r.Kind.Kind, r.Name, err)
	}
	return obj, nil
}

func isDryRun(r admission.Request) bool { return r.DryRun != nil && *r.DryRun }

// podUses lists the Pods on a network, by a consistent list of DanmEps.
//
// With what is held (see held) that is race-free: an address goes from the status to
// the DanmEp, so a Pod that attaches after the object was read has changed it, and
// the API server asks again about the changed one.
func podUses(ctx context.Context, c client.Reader, ref network.Ref, uid string) ([]network.Usage, error) {
	var uses []network.Usage
	fresh := func() client.ObjectList { return &v1.DanmEpList{} }
	err := eachListItem(ctx, c, fresh, func(obj client.Object) {
		ep, ok := obj.(*v1.DanmEp)
		if !ok {
			return
		}
		if key := kube.NetworkKeyOf(ep); key.Ref == ref && (key.UID == "" || key.UID == uid) {
			uses = append(uses, useByEndpoint(ep))
		}
	}, client.InNamespace(ref.Namespace), client.MatchingFields{"spec.NetworkName": ref.Name})
	if err != nil {
		return nil, fmt.Errorf("list DanmEps of %s: %w", ref, err)
	}
	return uses, nil
}

func useByEndpoint(ep *v1.DanmEp) network.Usage {
	u := network.Usage{Pod: ep.Namespace + "/" + ep.Spec.Pod, Node: ep.Spec.Host}
	// An address that cannot be read is still a use.
	if found, err := kube.EndpointOf(ep); err == nil {
		u.V4, u.V6 = found.V4, found.V6
	}
	return u
}

// quarantineEntry is the entry of addresses that answered on the wire: nobody's Pods.
const quarantineEntry = "!quarantine"

// preallocatedUses lists what nodes have taken of a network for Pods to come. One use stands for
// all addresses of a node that lie outside of the DanmEps' ranges: the first and the
// last of each range are enough for a pool, which is one range too.
func preallocatedUses(status *v1.NetworkStatus) []network.Usage {
	if status == nil || status.IPAM == nil {
		return nil
	}
	var uses []network.Usage
	for node, entry := range status.IPAM.Held {
		if node == quarantineEntry {
			continue
		}
		ends4, ends6 := firstAndLast(entry.V4), firstAndLast(entry.V6)
		for i := range max(len(ends4), len(ends6), 1) {
			u := network.Usage{Node: node}
			if i < len(ends4) {
				u.V4 = ends4[i]
			}
			if i < len(ends6) {
				u.V6 = ends6[i]
			}
			uses = append(uses, u)
		}
	}
	slices.SortFunc(uses, func(a, b network.Usage) int { return a.V4.Compare(b.V4) })
	return uses
}

// firstAndLast are the first and the last address of a text of ranges. The text is a node's:
// it may say "all of fd00::/8", so nothing is counted here.
func firstAndLast(text string) []netip.Addr {
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
