// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam"
)

// clusterNetwork returns a network with these options; its ID is id.
func clusterNetwork(name, id, kind string, o v1.NetworkOptions) *v1.ClusterNetwork {
	return &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.NetworkSpec{NetworkID: id, NetworkType: kind, Options: o},
	}
}

// vlan is an IPVLAN network on a VLAN of the trunk.
func vlan(name, id string, tag int32, cidr string) *v1.ClusterNetwork {
	return clusterNetwork(name, id, v1.TypeIPVLAN, v1.NetworkOptions{Device: trunk, VLAN: tag, CIDR: cidr})
}

// vxlan is a MACVLAN network on a VXLAN between the nodes' trunk addresses.
func vxlan(name, id string, vni int32, cidr string) *v1.ClusterNetwork {
	return clusterNetwork(name, id, v1.TypeMACVLAN, v1.NetworkOptions{Device: trunk, VXLAN: vni, CIDR: cidr})
}

// allocations is who has which address of one network, from three sides that must
// agree: the bitmap, the nodes' entries, and the DanmEps.
type allocations struct {
	bits, entries, endpoints map[netip.Addr]bool
	// byNode are the held addresses of each node.
	byNode map[string][]netip.Addr
	// duplicates are addresses that two DanmEps have.
	duplicates []netip.Addr
}

// read fills the ledger of a ClusterNetwork. The DanmEps are listed after the
// network is read, so an address on its way out of an entry is seen there.
func (c *cluster) readAllocations(ctx context.Context, name string) (allocations, error) {
	l := allocations{
		bits: map[netip.Addr]bool{}, entries: map[netip.Addr]bool{}, endpoints: map[netip.Addr]bool{},
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

func (l *allocations) addStatus(s *v1.IPAMStatus) error {
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
				l.entries[a] = true
				l.byNode[node] = append(l.byNode[node], a)
			}
		}
	}
	return nil
}

func (l *allocations) addBits(b *v1.AddressBitmap) error {
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

func (l *allocations) addEndpoint(i v1.DanmEpInterface) {
	for _, text := range []string{i.Address, i.AddressIPv6} {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue // no address of this family
		}
		if l.endpoints[p.Addr()] {
			l.duplicates = append(l.duplicates, p.Addr())
		}
		l.endpoints[p.Addr()] = true
	}
}

// inconsistency says what does not agree; "" when all does. A bit that nobody covers is
// a leak, a cover without a bit is an address that may be handed out twice.
func (l *allocations) inconsistency() string {
	if len(l.duplicates) > 0 {
		return fmt.Sprintf("two endpoints each have %v", l.duplicates)
	}
	covered := maps.Clone(l.entries)
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

// warmAddresses are the addresses that a node keeps ready: held, and on no endpoint.
func (l *allocations) warmAddresses(node string) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(l.byNode[node]), func(a netip.Addr) bool { return l.endpoints[a] })
}

// publishedAndHeld are addresses that have both a DanmEp and a place in an entry, as they
// may for a moment only.
func (l *allocations) publishedAndHeld() []netip.Addr {
	return slices.DeleteFunc(sorted(l.entries), func(a netip.Addr) bool { return !l.endpoints[a] })
}

func sorted(set map[netip.Addr]bool) []netip.Addr {
	return slices.SortedFunc(maps.Keys(set), netip.Addr.Compare)
}

// checkAllocations says what is wrong when want Pods are to run on the network: DanmEps and the
// kernels of all nodes have to have the same want addresses, the bitmap these and what
// nodes keep ready, and the journals no other sandbox.
func (c *cluster) checkAllocations(ctx context.Context, network string, cidr netip.Prefix, want int) string {
	return c.checkAllocationsOn(ctx, c.nodes, network, cidr, want)
}

// checkAllocationsOn is settled for the nodes that are on.
func (c *cluster) checkAllocationsOn(ctx context.Context, nodes []string, network string, cidr netip.Prefix, want int) string {
	l, err := c.readAllocations(ctx, network)
	if err != nil {
		return err.Error()
	}
	if wrong := l.inconsistency(); wrong != "" {
		return wrong
	}
	if len(l.endpoints) != want {
		return fmt.Sprintf("%d addresses have a DanmEp, want %d", len(l.endpoints), want)
	}
	if both := l.publishedAndHeld(); len(both) > 0 {
		return fmt.Sprintf("%v have DanmEps and are held, too", both)
	}
	kernel, sandboxes, err := c.addressesOnNodes(ctx, nodes, network, cidr)
	if err != nil {
		return err.Error()
	}
	if !maps.Equal(kernel, l.endpoints) {
		return fmt.Sprintf("the nodes' kernels have %v, the DanmEps %v", sorted(kernel), sorted(l.endpoints))
	}
	if sandboxes != want {
		return fmt.Sprintf("the journals have %d sandboxes on the network, want %d", sandboxes, want)
	}
	return ""
}

// addressesOnNodes are the network's addresses in the nodes' kernels, and how many sandboxes
// their journals have on it. An address on two live interfaces is an error.
func (c *cluster) addressesOnNodes(
	ctx context.Context, nodes []string, network string, cidr netip.Prefix,
) (kernel map[netip.Addr]bool, sandboxes int, err error) {
	kernel = map[netip.Addr]bool{}
	for _, node := range nodes {
		found, err := c.sandboxAddresses(ctx, node, cidr)
		if err != nil {
			return nil, 0, err
		}
		for _, a := range found {
			if kernel[a] {
				return nil, 0, fmt.Errorf("%v is on two live interfaces", a)
			}
			kernel[a] = true
		}
		boxes, err := c.sandboxes(ctx, node, network)
		if err != nil {
			return nil, 0, err
		}
		sandboxes += len(boxes)
	}
	return kernel, sandboxes, nil
}

// awaitWarmPool waits until each node keeps at least so many addresses of a network ready.
func (c *cluster) awaitWarmPool(t *testing.T, network string, least int) {
	t.Helper()
	c.await(t.Context(), t, fmt.Sprintf("each node keeps %d addresses of %s ready", least, network), func(ctx context.Context) string {
		l, err := c.readAllocations(ctx, network)
		if err != nil {
			return err.Error()
		}
		for _, node := range c.nodes {
			if has := l.warmAddresses(node); len(has) < least {
				return fmt.Sprintf("%s has %v", node, has)
			}
		}
		return ""
	})
}
