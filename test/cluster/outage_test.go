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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/test/allocations"
)

const (
	apiServer = "kube-apiserver"
	// outageDuration is how long the API server is.
	outageDuration = 60 * time.Second
	// catchUpTimeout is how soon after that all books are right.
	catchUpTimeout = time.Minute
)

// The sandboxes of 20 Pods die while the API server is away for a minute: kubelet asks
// for 20 DELs and 20 ADDs, and gets them, from what the nodes keep ready. What they
// cannot serve is to be tried again, and works once the API server is back. A minute
// later all books are right.
func TestAPIServerAwayDuringADDsAndDELs(t *testing.T) {
	const pods = 20
	c, ns := shared, shared.namespace(t)
	cidr := netip.MustParsePrefix("10.80.0.0/22")
	c.create(t, vxlan("away", "away", 8000, cidr.String()))
	scarce := vxlan("scarce", "scarce", 8100, "10.81.0.0/24")
	scarce.Spec.Options.Pool = &v1.IPPool{Start: "10.81.0.10", End: "10.81.0.11"}
	c.create(t, scarce)
	for i := range pods {
		c.create(t, restartAlways(pod(ns, fmt.Sprintf("away-%d", i), c.nodes[i%len(c.nodes)], interfaceAnnotation("away", "dynamic"))))
	}
	lone := restartAlways(pod(ns, "lone", c.nodes[0], interfaceAnnotation("scarce", "dynamic")))
	c.create(t, lone)
	c.await(t.Context(), t, "all Pods run and the books are right", func(ctx context.Context) string {
		if n, err := c.runningPods(ctx, ns); err != nil || n != pods+1 {
			return fmt.Sprintf("%d Pods run (error: %v)", n, err)
		}
		return c.checkAllocations(ctx, "away", cidr, pods)
	})
	c.awaitWarmPool(t, "away", (pods+len(c.nodes)-1)/len(c.nodes))
	before := c.sandboxesOnAllNodes(t, "away")

	back := c.stopAPIServer(t)
	for _, node := range c.nodes {
		c.killSandboxes(t, node, ns)
	}
	c.awaitReplaced(t, before, cidr)
	c.checkTryAgainLater(t, lone)
	back()

	c.awaitFor(t.Context(), t, catchUpTimeout, "DanmEps and books are right again", func(ctx context.Context) string {
		return c.checkAllocations(ctx, "away", cidr, pods)
	})
	c.await(t.Context(), t, "the Pod that had to wait has its address", func(ctx context.Context) string {
		return c.checkAllocations(ctx, "scarce", netip.MustParsePrefix("10.81.0.0/24"), 1)
	})
	c.deletePods(t, ns, "away", cidr)
}

// sandboxesOnAllNodes are those of all nodes on a network.
func (c *cluster) sandboxesOnAllNodes(t *testing.T, network string) map[string]sandbox {
	t.Helper()
	var all map[string]sandbox
	c.await(t.Context(), t, "the journals can be read", func(ctx context.Context) string {
		all = map[string]sandbox{}
		for _, node := range c.nodes {
			boxes, err := c.sandboxes(ctx, node, network)
			if err != nil {
				return err.Error()
			}
			for _, s := range boxes {
				all[s.record.ContainerID] = s
			}
		}
		return ""
	})
	return all
}

// stopAPIServer takes the API server away; back waits until it was away for a minute
// and brings it back. When the test ends early the cleanup does.
func (c *cluster) stopAPIServer(t *testing.T) (back func()) {
	t.Helper()
	start := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
		defer cancel()
		if err := c.lab.StartPart(ctx, apiServer); err != nil {
			t.Errorf("start API server: %v", err)
		}
	}
	if err := c.lab.StopPart(t.Context(), apiServer); err != nil {
		t.Fatal(err)
	}
	over := time.After(outageDuration)
	t.Cleanup(start)
	return func() {
		t.Helper()
		select {
		case <-over:
			start()
		case <-t.Context().Done():
		}
	}
}

// awaitReplaced waits until each sandbox has ended and its Pod has another one, with an
// address of its own: none of those before, as nobody was told that they are free.
func (c *cluster) awaitReplaced(t *testing.T, before map[string]sandbox, cidr netip.Prefix) {
	t.Helper()
	old := map[netip.Addr]bool{}
	for _, s := range before {
		old[s.address] = true
	}
	c.await(t.Context(), t, "all Pods have new sandboxes without an API server", func(ctx context.Context) string {
		left, err := c.liveSandboxes(ctx, before)
		if err != nil || len(left) > 0 {
			return fmt.Sprintf("%d of %d sandboxes have not ended (error: %v)", len(left), len(before), err)
		}
		now := map[netip.Addr]bool{}
		for _, node := range c.nodes {
			found, err := c.sandboxAddresses(ctx, node, cidr)
			if err != nil {
				return err.Error()
			}
			for _, a := range found {
				if now[a] || old[a] {
					t.Errorf("%v is on another interface, too, or nobody knows that it is free", a)
				}
				now[a] = true
			}
		}
		if len(now) < len(before) {
			return fmt.Sprintf("the nodes' kernels have %v, for %d Pods", allocations.Sorted(now), len(before))
		}
		return ""
	})
}

// checkTryAgainLater wants the plugin to answer that a claim can be tried again later.
func (c *cluster) checkTryAgainLater(t *testing.T, p *corev1.Pod) {
	t.Helper()
	refused, err := c.execPluginADD(t.Context(), c.nodes[0], p)
	if err != nil {
		t.Fatal(err)
	}
	if refused.Code != wire.CodeTryAgain {
		t.Errorf("ADD without a hold and an API server: got error %d (%s), want %d", refused.Code, refused.Msg, wire.CodeTryAgain)
	}
	t.Logf("ADD without a hold answers: %s: %s", refused.Msg, refused.Details)
}
