// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	c.churn(t, ns, "kills", cidr, func(ctx context.Context) {
		for i := range 5 {
			time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Second)))) // a random moment
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
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatalf("create Pod: %v", err)
		}
		pods = append(pods, p)
	}
	fault(t.Context())
	for _, p := range pods {
		c.running(t.Context(), t, p)
	}
	c.await(t.Context(), t, "books are right with all Pods running", func(ctx context.Context) string {
		return c.settled(ctx, network, cidr, churners)
	})
	if err := c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns)); err != nil {
		t.Fatalf("delete Pods: %v", err)
	}
	fault(t.Context())
	c.await(t.Context(), t, "nothing is left of the Pods", func(ctx context.Context) string {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err.Error()
		}
		if n := len(list.Items); n > 0 {
			return fmt.Sprintf("%d Pods are there", n)
		}
		return c.settled(ctx, network, cidr, 0)
	})
}

// settled says what is wrong when want Pods are to run on the network: bitmap,
// DanmEps and the kernels of all nodes have to have the same want addresses, the
// entries none, and the journals no other sandbox.
func (c *cluster) settled(ctx context.Context, network string, cidr netip.Prefix, want int) string {
	l, err := c.ledger(ctx, network)
	if err != nil {
		return err.Error()
	}
	if wrong := l.wrong(); wrong != "" {
		return wrong
	}
	if len(l.endpoints) != want || len(l.held) != 0 {
		return fmt.Sprintf("%d addresses have a DanmEp and %d are held, want %d and 0", len(l.endpoints), len(l.held), want)
	}
	kernel := map[netip.Addr]bool{}
	sandboxes := 0
	for _, node := range c.nodes {
		found, err := c.sandboxAddresses(ctx, node, cidr)
		if err != nil {
			return err.Error()
		}
		for _, a := range found {
			if kernel[a] {
				return fmt.Sprintf("%v is on two live interfaces", a)
			}
			kernel[a] = true
		}
		records, err := c.records(ctx, node)
		if err != nil {
			return err.Error()
		}
		for _, r := range records {
			for _, i := range r.Interfaces {
				if i.Network.Ref.Name == network {
					sandboxes++
				}
			}
		}
	}
	if !maps.Equal(kernel, l.endpoints) {
		return fmt.Sprintf("the nodes' kernels have %v, the DanmEps %v", slices.Sorted(maps.Keys(asStrings(kernel))), slices.Sorted(maps.Keys(asStrings(l.endpoints))))
	}
	if sandboxes != want {
		return fmt.Sprintf("the journals have %d sandboxes on the network, want %d", sandboxes, want)
	}
	return ""
}

func asStrings(set map[netip.Addr]bool) map[string]bool {
	m := make(map[string]bool, len(set))
	for a := range set {
		m[a.String()] = true
	}
	return m
}
