// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

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
