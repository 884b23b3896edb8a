// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkValidator validates ClusterNetworks, TenantNetworks and DanmNets.
type networkValidator struct {
	reader    client.Reader
	index     *networkIndex
	reclaims  *reclaimRequester
	subnets   *subnetValidator
	deletions *deletionValidator
}

// Handle implements admission.Handler.
func (h *networkValidator) Handle(ctx context.Context, r admission.Request) admission.Response {
	switch r.Operation {
	case admissionv1.Delete:
		return responseFor(h.deletions.validate(ctx, r))
	case admissionv1.Create, admissionv1.Update:
		return h.validate(ctx, r)
	}
	return admission.Allowed("")
}

// validate checks the rules that need other objects. The API server has checked the rules about the
// object alone; parsing checks them again, because both use one table of rules.
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
		return admission.Allowed("") // metadata may change even if an old spec breaks a new rule
	}
	n, err := network.FromObject(obj)
	if err != nil {
		return responseFor(err)
	}
	if err := network.CheckAssignment(n); err != nil {
		return responseFor(err)
	}
	if err := network.CheckPools(n); err != nil {
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
	return admission.Allowed("").WithWarnings(slices.Concat(
		linkWarnings(n), h.segmentWarnings(n), h.untaggedWarnings(ctx, n), h.subnets.warnings(n),
	)...)
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

// oldNetwork parses an object as it was before the change; nil for a new one, and for an invalid
// one, which may change in any way that makes it valid.
func oldNetwork(old client.Object) *network.Network {
	if old == nil {
		return nil
	}
	n, _ := network.FromObject(old)
	return n
}

// validateUpdate checks that an update disconnects no Pod. If only addresses that nodes have
// pre-allocated forbid it, the nodes are asked to release them, so that a later attempt can
// succeed.
func (h *networkValidator) validateUpdate(ctx context.Context, old client.Object, before, n *network.Network, dryRun bool) error {
	if before == nil {
		return nil
	}
	eps, err := attachedEndpoints(ctx, h.reader, n.Ref, string(old.GetUID()))
	if err != nil {
		return err
	}
	uses := podUses(eps)
	if len(eps) > 0 {
		uses[0] = describedUse(ctx, h.reader, eps[0])
	}
	if err := network.CheckUpdate(before, n, uses); err != nil {
		return err
	}
	err = network.CheckUpdate(before, n, preallocatedUses(kube.NetworkStatusOf(old), slices.Concat(n.V4.Gateways(), n.V6.Gateways())...))
	if err != nil && !dryRun {
		h.reclaims.enqueue(old)
	}
	return err
}

// linkWarnings warns of networks that Pods cannot join because they have no host link.
func linkWarnings(n *network.Network) []string {
	spec := field.NewPath("spec")
	unused := "has no effect without host_device: set host_device, or leave it out"
	switch {
	case n.UsesDevicePool() && n.VLAN == 0 && n.Ref.Namespace == "" && len(n.AllowedTenants) == 0:
		return []string{fmt.Sprintf("%s: without it, a Pod with the capability NET_ADMIN can send and receive the frames of all VLANs that the switch allows on the NIC: set vlan, or AllowedTenants", spec.Child("Options", "vlan"))}
	case n.UsesDevicePool():
		return nil
	case n.DevicePool != "":
		return []string{fmt.Sprintf("%s: has no effect with NetworkType %s, because only sriov takes devices from a pool: use NetworkType sriov, or host_device", spec.Child("Options", "device_pool"), n.Type)}
	case n.Device != "":
		return nil
	case !n.Delegates():
		return []string{fmt.Sprintf("%s: must name a NIC of the nodes before Pods can join %s: set it", spec.Child("Options", "host_device"), n.Ref)}
	case n.VLAN != 0:
		return []string{fmt.Sprintf("%s: %s", spec.Child("Options", "vlan"), unused)}
	case n.VXLAN != 0:
		return []string{fmt.Sprintf("%s: %s", spec.Child("Options", "vxlan"), unused)}
	}
	return nil
}

// segmentWarnings returns warnings of settings that work, but may be a mistake.
func (h *networkValidator) segmentWarnings(n *network.Network) []string {
	if n.Ref.Kind == v1.KindTenantNetwork || n.VLAN == 0 && n.VXLAN == 0 {
		return nil
	}
	for _, o := range h.index.contenders(n) {
		if o.Ref.Kind == v1.KindTenantNetwork && slotOf(o) == slotOf(n) {
			return []string{fmt.Sprintf("%s is on the same segment, %s, as %s of a tenant: their Pods can reach each other",
				n.Ref, slotOf(n), o.Ref)}
		}
	}
	return nil
}

// untaggedWarnings warns of networks that reach the VLANs which TenantConfigs give to tenants.
func (h *networkValidator) untaggedWarnings(ctx context.Context, n *network.Network) (warnings []string) {
	if id, ok := n.Link(); !ok || !id.IsNIC() || n.Ref.Kind == v1.KindTenantNetwork {
		return nil // a TenantConfig has chosen a tenant's device
	}
	var list v1.TenantConfigList
	if err := h.reader.List(ctx, &list); err != nil {
		return []string{fmt.Sprintf("failed to check whether tenants have VLANs on host_device %s: list TenantConfigs: %v", n.Device, err)}
	}
	for i := range list.Items {
		t, err := network.FromTenantConfig(&list.Items[i])
		if err != nil {
			continue // an invalid TenantConfig gives nothing to tenants
		}
		if w := t.UntaggedWarning(n); w != "" {
			warnings = append(warnings, w)
		}
	}
	return warnings
}

// decodeNetwork decodes a network object of a request; nil when the request has none.
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

// attachedEndpoints lists the DanmEps of a network, by a consistent list.
//
// Together with preallocatedUses this is free of races: an address moves from the status to the
// DanmEp, so a Pod that attaches after the object was read has changed the object, and the API
// server calls admission again with the changed one.
func attachedEndpoints(ctx context.Context, c client.Reader, ref network.Ref, uid string) ([]*v1.DanmEp, error) {
	var eps []*v1.DanmEp
	fresh := func() client.ObjectList { return &v1.DanmEpList{} }
	err := eachListItem(ctx, c, fresh, func(obj client.Object) {
		ep, ok := obj.(*v1.DanmEp)
		if !ok {
			return
		}
		if key := kube.NetworkKeyOf(ep); key.Ref == ref && (key.UID == "" || key.UID == uid) {
			eps = append(eps, ep)
		}
	}, client.InNamespace(ref.Namespace), client.MatchingFields{"spec.NetworkName": ref.Name})
	if err != nil {
		return nil, fmt.Errorf("list DanmEps of %s: %w", ref, err)
	}
	return eps, nil
}

// podUses returns the uses of a network by the Pods of DanmEps.
func podUses(eps []*v1.DanmEp) []network.Usage {
	uses := make([]network.Usage, len(eps))
	for i, ep := range eps {
		uses[i] = useByEndpoint(ep)
	}
	return uses
}

// describedUse returns a Pod's use for a message. Usage.DanmEp is set if another program has written the DanmEp
// and the Pod does not exist: no daemon removes such a DanmEp. If the Pod cannot be read, it may exist.
func describedUse(ctx context.Context, c client.Reader, ep *v1.DanmEp) network.Usage {
	u := useByEndpoint(ep)
	if ep.Spec.NetworkUID == "" {
		if pod, err := kube.PodOf(ctx, c, ep); pod == nil && err == nil {
			u.DanmEp = ep.Namespace + "/" + ep.Name
		}
	}
	return u
}

func useByEndpoint(ep *v1.DanmEp) network.Usage {
	u := network.Usage{Pod: kube.PodKeyOf(ep).String(), Node: ep.Spec.Host}
	// A DanmEp with an unreadable address still uses the network.
	if found, err := kube.EndpointOf(ep); err == nil {
		u.V4, u.V6 = found.V4, found.V6
	}
	return u
}

// quarantineEntry is the entry of addresses that another machine uses. No Pod has them.
const quarantineEntry = "!quarantine"

// preallocatedUses lists the addresses of a network that nodes have for future Pods, as far as they
// decide a change: the first and the last address of each node's ranges, and the gateways in these
// ranges, except those in quarantine. A subnet or a pool, which is one range, contains all addresses of a
// node if it contains the first and the last.
func preallocatedUses(status *v1.NetworkStatus, gateways ...netip.Addr) []network.Usage {
	if status == nil || status.IPAM == nil {
		return nil
	}
	var uses []network.Usage
	for node, entry := range status.IPAM.Held {
		if node == quarantineEntry {
			continue
		}
		addrs4 := decisiveAddresses(withoutQuarantined(entry.V4, entry.QuarantinedV4, gateways), gateways)
		addrs6 := decisiveAddresses(withoutQuarantined(entry.V6, entry.QuarantinedV6, gateways), gateways)
		for i := range max(len(addrs4), len(addrs6), 1) {
			u := network.Usage{Node: node}
			if i < len(addrs4) {
				u.V4 = addrs4[i]
			}
			if i < len(addrs6) {
				u.V6 = addrs6[i]
			}
			uses = append(uses, u)
		}
	}
	slices.SortFunc(uses, func(a, b network.Usage) int { return a.V4.Compare(b.V4) })
	return uses
}

// withoutQuarantined removes the gateways in quarantine from a text of ranges: another machine has such
// an address, often the router that the user declares.
func withoutQuarantined(text, quarantined string, gateways []netip.Addr) string {
	for _, a := range gateways {
		if containsAddr(quarantined, a) {
			text = withoutAddr(text, a)
		}
	}
	return text
}

// withoutAddr removes an address from a text of ranges.
func withoutAddr(text string, a netip.Addr) string {
	var kept []string
	for r := range strings.SplitSeq(text, ",") {
		if !rangeContains(r, a) {
			kept = append(kept, r)
			continue
		}
		ends := firstAndLast(r)
		if ends[0].Less(a) {
			kept = append(kept, ends[0].String()+"-"+a.Prev().String())
		}
		if a.Less(ends[1]) {
			kept = append(kept, a.Next().String()+"-"+ends[1].String())
		}
	}
	return strings.Join(kept, ",")
}

// decisiveAddresses returns the first and the last address in a text of ranges, and the gateways in
// them. A node writes the text, which may be "all of fd00::/8", so the addresses are not enumerated.
func decisiveAddresses(text string, gateways []netip.Addr) []netip.Addr {
	found := firstAndLast(text)
	for _, a := range gateways {
		if containsAddr(text, a) {
			found = append(found, a)
		}
	}
	return found
}

// containsAddr reports whether a text of ranges contains an address.
func containsAddr(text string, a netip.Addr) bool {
	return slices.ContainsFunc(strings.Split(text, ","), func(r string) bool { return rangeContains(r, a) })
}

// rangeContains reports whether a text of one address or one range contains an address. An unreadable
// text contains none.
func rangeContains(text string, a netip.Addr) bool {
	ends := firstAndLast(text)
	return len(ends) == 2 && !a.Less(ends[0]) && !ends[1].Less(a)
}

// firstAndLast returns the first and the last address in a text of ranges.
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
