// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// A pool has exactly as many addresses as there are Pods, and each node keeps some
// ready when the most of the Pods come, on two of three nodes: what the third keeps
// must not be missing. One Pod more is told so, and runs when another one goes.
func TestExactExhaustion(t *testing.T) {
	const pool = 32 // with fewer than eight free for each of them no node keeps any
	c, ns := shared, shared.namespace(t)
	cidr := netip.MustParsePrefix("10.78.0.0/24")
	n := vxlan("exact", "exact", 7800, cidr.String())
	n.Spec.Options.Pool = &v1.IPPool{Start: "10.78.0.10", End: fmt.Sprintf("10.78.0.%d", 10+pool-1)}
	c.create(t, n)
	want := interfaceAnnotation("exact", "dynamic")

	first := c.createPods(t, 1, ns, "first-1", c.nodes[0], want)
	for i, node := range c.nodes[1:] {
		first = append(first, c.createPods(t, 1, ns, fmt.Sprintf("first-%d", i+2), node, want)...)
	}
	for _, p := range first {
		c.awaitRunning(t.Context(), t, p)
	}
	c.awaitWarmPool(t, "exact", 1)

	half := (pool - len(first)) / 2
	rest := c.createPods(t, half, ns, "rest-1", c.nodes[0], want)
	for _, p := range append(rest, c.createPods(t, pool-len(first)-half, ns, "rest-2", c.nodes[1], want)...) {
		c.awaitRunning(t.Context(), t, p)
	}
	c.await(t.Context(), t, "each address is on one Pod", func(ctx context.Context) string {
		return c.checkAllocations(ctx, "exact", cidr, pool)
	})

	late := c.createPods(t, 1, ns, "late", c.nodes[1], want)[0]
	c.await(t.Context(), t, "an Event says what is full, how full, and what to do", func(ctx context.Context) string {
		messages := c.warningEvents(ctx, late)
		for _, m := range messages {
			if isExhaustedMessage(m, "exact", pool) {
				return ""
			}
		}
		return strings.Join(messages, "\n")
	})
	c.delete(t, first[2])
	c.awaitRunning(t.Context(), t, late)
	c.await(t.Context(), t, "the address has moved", func(ctx context.Context) string {
		return c.checkAllocations(ctx, "exact", cidr, pool)
	})
	c.deletePods(t, ns, "exact", cidr)
}

// isExhaustedMessage reports whether a message names the network, how many addresses are in use
// and what to do.
func isExhaustedMessage(message, network string, inUse int) bool {
	number := regexp.MustCompile(fmt.Sprintf(`\b%d\b`, inUse))
	return strings.Contains(message, network) && number.MatchString(message) &&
		strings.Contains(message, "delete Pods, or widen")
}
