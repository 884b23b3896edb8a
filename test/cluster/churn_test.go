// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/test/random"
)

// churnPods is how many Pods come and go in one go, on two nodes.
const churnPods = 40

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
	for i := range churnPods {
		p := pod(ns, fmt.Sprintf("churn-%d", i), c.nodes[i%len(c.nodes)],
			fmt.Sprintf(`[{"clusterNetwork":"default"},{"clusterNetwork":%q,"ip":"dynamic"}]`, network))
		c.retryAdmission(t.Context(), t, "create", p, c.createIdempotently(p)) // all go in one go
		pods = append(pods, p)
	}
	fault(t.Context())
	for _, p := range pods {
		c.awaitRunning(t.Context(), t, p)
	}
	c.await(t.Context(), t, "books are right with all Pods running", func(ctx context.Context) string {
		return c.checkAllocations(ctx, network, cidr, churnPods)
	})
	c.deleteAll(t, ns)
	fault(t.Context())
	c.awaitNothingLeft(t, ns, network, cidr)
}
