// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam"
)

// ledger is who has which address of one network, from three sides that must
// agree: the bitmap, the nodes' entries, and the DanmEps.
type ledger struct {
	bits, held, endpoints map[netip.Addr]bool
	// byNode are the held addresses of each node.
	byNode map[string][]netip.Addr
	// twice are addresses that two DanmEps have.
	twice []netip.Addr
}

// read fills the ledger of a ClusterNetwork. The DanmEps are listed after the
// network is read, so an address on its way out of an entry is seen there.
func (c *cluster) ledger(ctx context.Context, name string) (ledger, error) {
	l := ledger{
		bits: map[netip.Addr]bool{}, held: map[netip.Addr]bool{}, endpoints: map[netip.Addr]bool{},
		byNode: map[string][]netip.Addr{},
	}
	var n v1.ClusterNetwork
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
		return l, err
	}
	if err := l.addStatus(n.Status.IPAM); err != nil {
		return l, fmt.Errorf("read ClusterNetwork %s: %w", name, err)
	}
	var eps v1.DanmEpList
	if err := c.List(ctx, &eps); err != nil {
		return l, err
	}
	for _, ep := range eps.Items {
		if ep.Spec.NetworkName == name && ep.Spec.APIType == v1.KindClusterNetwork {
			l.addEndpoint(ep.Spec.Interface)
		}
	}
	return l, nil
}

func (l *ledger) addStatus(s *v1.IPAMStatus) error {
	if s == nil {
		return nil
	}
	for _, b := range []*v1.AddressBitmap{s.V4, s.V6} {
		if err := l.addBits(b); err != nil {
			return err
		}
	}
	for node, h := range s.Held {
		for _, text := range []string{h.V4, h.V6} {
			r, err := ipam.ParseRanges(text)
			if err != nil {
				return fmt.Errorf("entry of %s: %w", node, err)
			}
			for a := range r.All() {
				l.held[a] = true
				l.byNode[node] = append(l.byNode[node], a)
			}
		}
	}
	return nil
}

func (l *ledger) addBits(b *v1.AddressBitmap) error {
	if b == nil {
		return nil
	}
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return err
	}
	pool, err := ipam.Decode(ipam.Config{CIDR: cidr}, ipam.State{CIDR: b.CIDR, Cursor: b.Cursor, Pages: b.Pages})
	if err != nil {
		return err
	}
	for a := range pool.All() {
		l.bits[a] = true
	}
	return nil
}

func (l *ledger) addEndpoint(i v1.DanmEpInterface) {
	for _, text := range []string{i.Address, i.AddressIPv6} {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue // no address of this family
		}
		if l.endpoints[p.Addr()] {
			l.twice = append(l.twice, p.Addr())
		}
		l.endpoints[p.Addr()] = true
	}
}

// wrong says what does not agree; "" when all does. A bit that nobody covers is
// a leak, a cover without a bit is an address that may be handed out twice.
func (l *ledger) wrong() string {
	if len(l.twice) > 0 {
		return fmt.Sprintf("two endpoints each have %v", l.twice)
	}
	covered := maps.Clone(l.held)
	maps.Copy(covered, l.endpoints)
	for _, a := range sorted(covered) {
		if !l.bits[a] {
			return fmt.Sprintf("%v is covered but its bit is clear", a)
		}
	}
	for _, a := range sorted(l.bits) {
		if !covered[a] {
			return fmt.Sprintf("%v has its bit set and nobody covers it", a)
		}
	}
	return ""
}

// unused are the addresses that a node keeps ready: held, and on no endpoint.
func (l *ledger) unused(node string) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(l.byNode[node]), func(a netip.Addr) bool { return l.endpoints[a] })
}

// lingering are addresses that have both a DanmEp and a place in an entry, as they
// may for a moment only.
func (l *ledger) lingering() []netip.Addr {
	return slices.DeleteFunc(sorted(l.held), func(a netip.Addr) bool { return !l.endpoints[a] })
}

func sorted(set map[netip.Addr]bool) []netip.Addr {
	return slices.SortedFunc(maps.Keys(set), netip.Addr.Compare)
}
