// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
)

// A node loses its power while it is at work on a dozen Pods: some run, some have a
// sandbox half-made or an address that no DanmEp names yet. When it is back all run,
// each with an address of its own, and when they are deleted nothing is left.
func TestPowerLossInABurst(t *testing.T) {
	const pods, some = 12, 3
	c, ns := shared, shared.namespace(t)
	cidr := netip.MustParsePrefix("10.77.0.0/24")
	c.create(t, vxlan("burst", "burst", 7700, cidr.String()))
	node := c.nodes[1]
	c.createPods(t, pods, ns, "burst", node, interfaceAnnotation("burst", "dynamic"))
	c.await(t.Context(), t, "the node is in the middle of the burst", func(ctx context.Context) string {
		boxes, err := c.sandboxes(ctx, node, "burst")
		if err != nil {
			return err.Error()
		}
		if len(boxes) >= some {
			return ""
		}
		return fmt.Sprintf("%d Pods have their interfaces", len(boxes))
	})
	if err := c.lab.KillNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	n, err := c.runningPods(t.Context(), ns)
	if err != nil || n == pods {
		t.Fatalf("%d of %d Pods ran when the power went (error: %v), want fewer: this was no burst", n, pods, err)
	}
	t.Logf("%d of %d Pods ran when the power went", n, pods)
	c.startNode(t, node)
	c.await(t.Context(), t, "all Pods run, with their interfaces", func(ctx context.Context) string {
		if n, err := c.runningPods(ctx, ns); err != nil || n != pods {
			return fmt.Sprintf("%d of %d Pods run (error: %v)", n, pods, err)
		}
		return c.checkAllocations(ctx, "burst", cidr, pods)
	})
	c.deletePods(t, ns, "burst", cidr)
}
