// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/allocations"
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

// checkAllocations says what is wrong when want Pods are to run on the network: DanmEps and the
// kernels of all nodes have to have the same want addresses, the bitmap these and what
// nodes keep ready, and the journals no other sandbox.
func (c *cluster) checkAllocations(ctx context.Context, network string, cidr netip.Prefix, want int) string {
	return c.checkAllocationsOn(ctx, c.nodes, network, cidr, want)
}

// checkAllocationsOn is settled for the nodes that are on.
func (c *cluster) checkAllocationsOn(ctx context.Context, nodes []string, network string, cidr netip.Prefix, want int) string {
	l, err := allocations.Read(ctx, c, network)
	if err != nil {
		return err.Error()
	}
	if wrong := l.Inconsistency(); wrong != "" {
		return wrong
	}
	if len(l.Endpoints) != want {
		return fmt.Sprintf("%d addresses have a DanmEp, want %d", len(l.Endpoints), want)
	}
	if both := l.PublishedAndHeld(); len(both) > 0 {
		return fmt.Sprintf("%v have DanmEps and are held, too", both)
	}
	kernel, sandboxes, err := c.addressesOnNodes(ctx, nodes, network, cidr)
	if err != nil {
		return err.Error()
	}
	if !maps.Equal(kernel, l.Endpoints) {
		return fmt.Sprintf("the nodes' kernels have %v, the DanmEps %v", allocations.Sorted(kernel), allocations.Sorted(l.Endpoints))
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
		l, err := allocations.Read(ctx, c, network)
		if err != nil {
			return err.Error()
		}
		for _, node := range c.nodes {
			if has := l.WarmAddresses(node); len(has) < least {
				return fmt.Sprintf("%s has %v", node, has)
			}
		}
		return ""
	})
}
