// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// singlePodNetwork is a network with room for one Pod.
func (c *cluster) singlePodNetwork(t *testing.T, name, id string, vni int32, base string) (*v1.ClusterNetwork, netip.Addr) {
	t.Helper()
	n := vxlan(name, id, vni, base+".0/24")
	n.Spec.Options.Pool = &v1.IPPool{Start: base + ".9", End: base + ".9"}
	c.create(t, n)
	return n, netip.MustParseAddr(base + ".9")
}

// A Pod is force-deleted and its namespace goes while its sandbox runs on, since
// kubelet hangs: the API knows neither of them any more, but the address is on a
// live interface and nobody else may get it.
func TestForceDeletedPodKeepsItsAddress(t *testing.T) {
	c, ns := shared, shared.namespace(t)
	_, addr := c.singlePodNetwork(t, "forced", "forced", 7500, "10.75.0")
	const asks = `[{"clusterNetwork":"default"},{"clusterNetwork":"forced","ip":"dynamic"}]`
	node := c.nodes[0]

	doomed := &corev1.Namespace{}
	doomed.Name = ns + "-doomed"
	c.createNamespace(t, doomed)
	first := pod(doomed.Name, "first", node, asks)
	c.create(t, first)
	c.awaitRunning(t.Context(), t, first)

	c.signal(t, node, "STOP", "kubelet")
	t.Cleanup(func() { c.signal(t, node, "CONT", "kubelet") })
	now := client.GracePeriodSeconds(0)
	c.retryAdmission(t.Context(), t, "delete", first, func(ctx context.Context) error {
		return client.IgnoreNotFound(c.Delete(ctx, first, now))
	})
	c.delete(t, doomed)

	second := pod(ns, "second", c.nodes[1], asks)
	c.create(t, second)
	c.await(t.Context(), t, "the second Pod is told that the network is full", func(ctx context.Context) string {
		events := c.warningEvents(ctx, second)
		if slices.ContainsFunc(events, func(m string) bool { return isExhaustedMessage(m, "forced", 1) }) {
			return ""
		}
		return strings.Join(events, "\n")
	})
	if holders := c.nodesWithAddress(t, addr); len(holders) != 1 || holders[0] != node {
		t.Fatalf("%v is on %v, want it on %s alone: its sandbox runs", addr, holders, node)
	}

	c.signal(t, node, "CONT", "kubelet")
	c.awaitRunning(t.Context(), t, second)
	if holders := c.nodesWithAddress(t, addr); len(holders) != 1 || holders[0] != c.nodes[1] {
		t.Fatalf("%v is on %v, want it on %s alone: the first sandbox is gone", addr, holders, c.nodes[1])
	}
}

// signal sends a signal to a program of a node.
func (c *cluster) signal(t *testing.T, node, signal, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
	defer cancel()
	script := fmt.Sprintf("kill -%s $(pidof %s)", signal, program)
	if _, err := c.lab.Exec(ctx, node, "sh", "-c", script); err != nil {
		t.Fatalf("send SIG%s to %s on %s: %v", signal, program, node, err)
	}
}

// A node loses its power with Pods on it and comes back: its Pods get sandboxes
// anew, the old ones' addresses are given back, the books are right.
func TestPowerCut(t *testing.T) {
	c, ns := shared, shared.namespace(t)
	cidr := netip.MustParsePrefix("10.76.0.0/24")
	c.create(t, vxlan("power", "power", 7600, cidr.String()))
	var pods []*corev1.Pod
	for i := range 6 {
		p := pod(ns, fmt.Sprintf("power-%d", i), c.nodes[i%len(c.nodes)],
			`[{"clusterNetwork":"default"},{"clusterNetwork":"power","ip":"dynamic"}]`)
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		c.create(t, p)
		pods = append(pods, p)
	}
	for _, p := range pods {
		c.awaitRunning(t.Context(), t, p)
	}
	if err := c.lab.KillNode(t.Context(), c.nodes[1]); err != nil {
		t.Fatal(err)
	}
	c.startNode(t, c.nodes[1])
	c.await(t.Context(), t, "all Pods have their interfaces again", func(ctx context.Context) string {
		return c.checkAllocations(ctx, "power", cidr, len(pods))
	})
}
