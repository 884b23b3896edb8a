// SPDX-License-Identifier: Apache-2.0

// Package allocations compares, for tests, who has which address of a network: what its bitmap has, what its nodes keep,
// and what its DanmEps have.
package allocations

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam"
)

// Allocations is who has which address of one network, from three sides that must
// agree: the bitmap, the nodes' entries, and the DanmEps.
type Allocations struct {
	Bits, Entries, Endpoints map[netip.Addr]bool
	// ByNode are the held addresses of each node.
	ByNode map[string][]netip.Addr
	// Duplicates are addresses that two DanmEps have.
	Duplicates []netip.Addr
}

// Read reads the allocations of a ClusterNetwork. The DanmEps are listed after the
// network is read, so an address on its way out of an entry is seen there.
func Read(ctx context.Context, c client.Reader, name string) (Allocations, error) {
	l := Allocations{
		Bits: map[netip.Addr]bool{}, Entries: map[netip.Addr]bool{}, Endpoints: map[netip.Addr]bool{},
		ByNode: map[string][]netip.Addr{},
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

func (l *Allocations) addStatus(s *v1.IPAMStatus) error {
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
				l.Entries[a] = true
				l.ByNode[node] = append(l.ByNode[node], a)
			}
		}
	}
	return nil
}

func (l *Allocations) addBits(b *v1.AddressBitmap) error {
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
		l.Bits[a] = true
	}
	return nil
}

func (l *Allocations) addEndpoint(i v1.DanmEpInterface) {
	for _, text := range []string{i.Address, i.AddressIPv6} {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue // no address of this family
		}
		if l.Endpoints[p.Addr()] {
			l.Duplicates = append(l.Duplicates, p.Addr())
		}
		l.Endpoints[p.Addr()] = true
	}
}

// Inconsistency describes what does not agree; "" when all does. A bit that nobody covers is
// a leak, a cover without a bit is an address that may be handed out twice.
func (l *Allocations) Inconsistency() string {
	if len(l.Duplicates) > 0 {
		return fmt.Sprintf("two endpoints each have %v", l.Duplicates)
	}
	covered := maps.Clone(l.Entries)
	maps.Copy(covered, l.Endpoints)
	for _, a := range Sorted(covered) {
		if !l.Bits[a] {
			return fmt.Sprintf("%v is covered but its bit is clear", a)
		}
	}
	for _, a := range Sorted(l.Bits) {
		if !covered[a] {
			return fmt.Sprintf("%v has its bit set and nobody covers it", a)
		}
	}
	return ""
}

// WarmAddresses are the addresses that a node keeps ready: held, and on no endpoint.
func (l *Allocations) WarmAddresses(node string) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(l.ByNode[node]), func(a netip.Addr) bool { return l.Endpoints[a] })
}

// PublishedAndHeld are addresses that have both a DanmEp and a place in an entry, as they
// may for a moment only.
func (l *Allocations) PublishedAndHeld() []netip.Addr {
	return slices.DeleteFunc(Sorted(l.Entries), func(a netip.Addr) bool { return !l.Endpoints[a] })
}

// Sorted returns the addresses of a set in order.
func Sorted(set map[netip.Addr]bool) []netip.Addr {
	return slices.SortedFunc(maps.Keys(set), netip.Addr.Compare)
}
