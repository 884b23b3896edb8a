// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/allocations"
)

// minNodeGrace is the shortest time that patchbay-controller takes for --deleted-node-grace-period.
const minNodeGrace = "--deleted-node-grace-period=1m"

// A node loses its power and its Node object is deleted: what its Pods had is freed
// once the grace is over, and nothing else. Another node's Pod gets the static address
// of one of them. The node comes back, with a disk that knows it otherwise, and takes
// nothing of what it lost.
func TestNodeRemovedForGood(t *testing.T) {
	const static = "10.82.0.50"
	c, ns := shared, shared.namespace(t)
	cidr := netip.MustParsePrefix("10.82.0.0/24")
	c.create(t, vxlan("removed", "removed", 8200, cidr.String()))
	c.addControllerFlag(t, minNodeGrace)
	lost, stay := c.nodes[2], c.nodes[:2]
	pods := c.createPods(t, 3, ns, "lost", lost, interfaceAnnotation("removed", "dynamic"))
	pods = append(pods, c.createPods(t, 1, ns, "static", lost, interfaceAnnotation("removed", static))...)
	for i, node := range stay {
		pods = append(pods, c.createPods(t, 1, ns, fmt.Sprintf("stay-%d", i), node, interfaceAnnotation("removed", "dynamic"))...)
	}
	for _, p := range pods {
		c.awaitRunning(t.Context(), t, p)
	}
	c.await(t.Context(), t, "books are right with all Pods running", func(ctx context.Context) string {
		return c.checkAllocations(ctx, "removed", cidr, len(pods))
	})
	before := c.endpointsOf(t, ns, stay)

	c.removeNode(t, lost)
	c.await(t.Context(), t, "what the node's Pods had is freed", func(ctx context.Context) string {
		l, err := allocations.Read(ctx, c, "removed")
		if err != nil {
			return err.Error()
		}
		if held := l.ByNode[lost]; len(held) > 0 {
			return fmt.Sprintf("its entry has %v", held)
		}
		return c.checkAllocationsOn(ctx, stay, "removed", cidr, len(stay))
	})
	if after := c.endpointsOf(t, ns, stay); !maps.Equal(before, after) {
		t.Errorf("the other nodes' DanmEps were %v, now they are %v", before, after)
	}
	heir := c.createPods(t, 1, ns, "heir", stay[0], interfaceAnnotation("removed", static))[0]
	c.awaitRunning(t.Context(), t, heir)
	c.awaitPodsGone(t, ns, lost)

	c.startNode(t, lost)
	next := c.createPods(t, 3, ns, "next", lost, interfaceAnnotation("removed", "dynamic"))
	for _, p := range next {
		c.awaitRunning(t.Context(), t, p)
	}
	c.await(t.Context(), t, "the node that is back has new addresses only", func(ctx context.Context) string {
		return c.checkAllocations(ctx, "removed", cidr, len(stay)+1+len(next))
	})
	if on := c.nodesWithAddress(t, netip.MustParseAddr(static)); !slices.Equal(on, stay[:1]) {
		t.Errorf("%s is on %v, want it on %s alone", static, on, stay[0])
	}
	c.deletePods(t, ns, "removed", cidr)
}

// removeNode takes a node out of the cluster as an administrator does after its machine
// broke.
func (c *cluster) removeNode(t *testing.T, node string) {
	t.Helper()
	t.Cleanup(func() { c.startNode(t, node) })
	if err := c.lab.KillNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{}
	n.Name = node
	c.delete(t, n)
}

// endpointsOf are the UIDs of the DanmEps of some nodes, and their addresses.
func (c *cluster) endpointsOf(t *testing.T, ns string, nodes []string) map[string]string {
	t.Helper()
	var list v1.DanmEpList
	if err := c.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatalf("list DanmEps: %v", err)
	}
	found := map[string]string{}
	for _, ep := range list.Items {
		if slices.Contains(nodes, ep.Spec.Host) {
			found[string(ep.UID)] = ep.Spec.Interface.Address
		}
	}
	return found
}

// awaitPodsGone waits until Kubernetes has deleted the Pods of a Node that is gone.
func (c *cluster) awaitPodsGone(t *testing.T, ns, node string) {
	t.Helper()
	c.await(t.Context(), t, "no Pod is bound to "+node, func(ctx context.Context) string {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err.Error()
		}
		for _, p := range list.Items {
			if p.Spec.NodeName == node {
				return "Pod " + p.Name + " is"
			}
		}
		return ""
	})
}

// addControllerFlag adds a flag to patchbay-controller's until the test ends.
func (c *cluster) addControllerFlag(t *testing.T, flag string) {
	t.Helper()
	var d appsv1.Deployment
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "patchbay-system", Name: "patchbay-controller"}, &d); err != nil {
		t.Fatalf("get controller: %v", err)
	}
	flags := d.Spec.Template.Spec.Containers[0].Args
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
		defer cancel()
		c.setControllerFlags(ctx, t, flags)
	})
	c.setControllerFlags(t.Context(), t, append(slices.Clone(flags), flag))
}

func (c *cluster) setControllerFlags(ctx context.Context, t *testing.T, flags []string) {
	t.Helper()
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": flags},
	})
	if err != nil {
		t.Fatal(err)
	}
	name := []string{"--namespace", "patchbay-system", "deployment/patchbay-controller"}
	if _, err := c.lab.Kubectl(ctx, append([]string{"patch", "--type=json", "--patch", string(patch)}, name...)...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.lab.Kubectl(ctx, append([]string{"rollout", "status", "--timeout=480s"}, name...)...); err != nil {
		t.Fatal(err)
	}
}
