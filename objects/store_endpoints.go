// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

// endpointPage is how many DanmEps are in memory in full at a time; all pages
// are of one snapshot.
const endpointPage = 500

// Endpoints implements claims.Store. No resourceVersion is sent, which makes the
// list consistent (Kubernetes API concepts, "Semantics for get and list"). It
// selects by network name on the API server, because a DanmEp that DANM wrote
// has no UID to select by.
func (s *Store) Endpoints(ctx context.Context, ref network.Ref) ([]claims.Endpoint, error) {
	var found []claims.Endpoint
	opts := client.ListOptions{Namespace: ref.Namespace, Limit: endpointPage}
	client.MatchingFields{"spec.NetworkName": ref.Name}.ApplyToList(&opts)
	for {
		page := &v1.DanmEpList{}
		if err := s.c.List(ctx, page, &opts); err != nil {
			return nil, storeError("list DanmEps of", ref, err)
		}
		for i := range page.Items {
			if !names(&page.Items[i], ref) {
				continue
			}
			ep, err := EndpointOf(&page.Items[i])
			if err != nil {
				return nil, fmt.Errorf("list DanmEps of %s: %w", ref, err)
			}
			found = append(found, ep)
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return found, nil
		}
	}
}

// names reports whether the DanmEp is of this network. DANM leaves apiType
// empty for its first kind.
func names(ep *v1.DanmEp, ref network.Ref) bool {
	kind := ep.Spec.APIType
	if kind == "" {
		kind = v1.KindDanmNet
	}
	return kind == ref.Kind && ep.Spec.NetworkName == ref.Name &&
		(ref.Namespace == "" || ep.Namespace == ref.Namespace)
}

// EndpointOf reads the addresses of a DanmEp. One that cannot be read is an
// error: to take it for "no address" would free an address in use.
func EndpointOf(ep *v1.DanmEp) (claims.Endpoint, error) {
	v4, err := parseAddress(ep.Spec.Interface.Address)
	if err != nil {
		return claims.Endpoint{}, fmt.Errorf("spec.Interface.Address of DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	v6, err := parseAddress(ep.Spec.Interface.AddressIPv6)
	if err != nil {
		return claims.Endpoint{}, fmt.Errorf("spec.Interface.AddressIPv6 of DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	return claims.Endpoint{
		Namespace: ep.Namespace, Name: ep.Name, UID: string(ep.UID), Pod: ep.Spec.Pod, PodUID: ep.Spec.PodUID,
		NetworkUID: ep.Spec.NetworkUID, Node: ep.Spec.Host, ID: ep.Spec.EndpointID, V4: v4, V6: v6,
	}, nil
}

// parseAddress reads an address with or without prefix length. DANM writes
// "none" for an interface without.
func parseAddress(s string) (netip.Addr, error) {
	if s == "" || s == "none" {
		return netip.Addr{}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr(), nil
	}
	return netip.ParseAddr(s)
}
