// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/test/random"
)

// churners is how many Pods come and go in one go, on two nodes.
const churners = 40

// 40 Pods in one go each get an address of their own; deleted in one go, they
// leave nothing.
func TestChurn(t *testing.T) {
	c, ns := shared, shared.namespace(t)
	cidr := netip.MustParsePrefix("10.73.0.0/24")
	c.create(t, vxlan("churn", "churn", 7300, cidr.String()))
	c.churn(t, ns, "churn", cidr, func(context.Context) {})
}

// The same while the daemons are killed at ten random moments, five while the
// Pods come and five while they go: a journalled record, a half-made interface, a
// claim without an answer all find their end.
func TestChurnWithKills(t *testing.T) {
	c, ns := shared, shared.namespace(t)
	cidr := netip.MustParsePrefix("10.74.0.0/24")
	c.create(t, vlan("kills", "kills", 740, cidr.String()))
	intN := random.IntN(t)
	c.churn(t, ns, "kills", cidr, func(ctx context.Context) {
		for i := range 5 {
			time.Sleep(time.Duration(intN(4000)) * time.Millisecond) // a random moment
			c.killDaemon(ctx, t, c.nodes[i%len(c.nodes)])
		}
	})
}

// churn creates and deletes the Pods, with a fault right after each, while the
// nodes are at work on them. It checks the books when all run and when all are gone.
func (c *cluster) churn(t *testing.T, ns, network string, cidr netip.Prefix, fault func(context.Context)) {
	t.Helper()
	var pods []*corev1.Pod
	for i := range churners {
		p := pod(ns, fmt.Sprintf("churn-%d", i), c.nodes[i%len(c.nodes)],
			fmt.Sprintf(`[{"clusterNetwork":"default"},{"clusterNetwork":%q,"ip":"dynamic"}]`, network))
		c.admitted(t.Context(), t, "create", p, c.creation(p)) // all go in one go
		pods = append(pods, p)
	}
	fault(t.Context())
	for _, p := range pods {
		c.running(t.Context(), t, p)
	}
	c.await(t.Context(), t, "books are right with all Pods running", func(ctx context.Context) string {
		return c.settled(ctx, network, cidr, churners)
	})
	c.deleteAll(t, ns)
	fault(t.Context())
	c.gone(t, ns, network, cidr)
}

// settled says what is wrong when want Pods are to run on the network: DanmEps and the
// kernels of all nodes have to have the same want addresses, the bitmap these and what
// nodes keep ready, and the journals no other sandbox.
func (c *cluster) settled(ctx context.Context, network string, cidr netip.Prefix, want int) string {
	return c.settledOn(ctx, c.nodes, network, cidr, want)
}

// settledOn is settled for the nodes that are on.
func (c *cluster) settledOn(ctx context.Context, nodes []string, network string, cidr netip.Prefix, want int) string {
	l, err := c.ledger(ctx, network)
	if err != nil {
		return err.Error()
	}
	if wrong := l.wrong(); wrong != "" {
		return wrong
	}
	if len(l.endpoints) != want {
		return fmt.Sprintf("%d addresses have a DanmEp, want %d", len(l.endpoints), want)
	}
	if both := l.lingering(); len(both) > 0 {
		return fmt.Sprintf("%v have DanmEps and are held, too", both)
	}
	kernel, sandboxes, err := c.onNodes(ctx, nodes, network, cidr)
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

// onNodes are the network's addresses in the nodes' kernels, and how many sandboxes
// their journals have on it. An address on two live interfaces is an error.
func (c *cluster) onNodes(
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
