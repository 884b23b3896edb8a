// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/random"
)

// registry has the sandbox that uses each address.
type registry struct {
	mu    sync.Mutex
	owner map[string]string
}

// acquire sets the owner of an address. It returns an error if the address has another owner.
func (r *registry) acquire(address, owner string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, ok := r.owner[address]; ok {
		return fmt.Errorf("address %s belongs to %s and %s", address, owner, other)
	}
	r.owner[address] = owner
	return nil
}

// release removes the owner of an address.
func (r *registry) release(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owner, address)
}

// churn adds and deletes sandboxes as a runtime does. A DEL and a new sandbox follow a failed ADD.
type churn struct {
	*node
	namespace string
	nets      [2]*v1.ClusterNetwork
	registry  registry
}

// runPod attaches one Pod and detaches it.
func (c *churn) runPod(ctx context.Context, random *rand.Rand) error {
	p, err := c.podWith(ctx, c.namespace, fmt.Sprintf(`[{"clusterNetwork": %q, "ip": "dynamic"}, {"clusterNetwork": %q, "ip": "dynamic"}]`,
		c.nets[0].Name, c.nets[1].Name))
	if err != nil {
		return err
	}
	addresses, err := c.attach(ctx, p)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if err := c.registry.acquire(a, p.sandbox); err != nil {
			return err
		}
	}
	if got := p.eth0(c.t); got != addresses[0] {
		return fmt.Errorf("eth0 of %s: got %s, want the first of %v", p.sandbox, got, addresses)
	}
	time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	if random.IntN(5) == 0 { // the sandbox ended before its DEL
		_ = ip("netns", "delete", p.sandbox)
	}
	for _, a := range addresses {
		c.registry.release(a)
	}
	return c.detach(ctx, p)
}

// attach repeats ADD until it succeeds, and returns the addresses.
func (c *churn) attach(ctx context.Context, p *pod) ([]string, error) {
	for {
		result, err := c.callWith(ctx, "ADD", p)
		if err == nil {
			var all []string
			for _, ip := range result.IPs {
				all = append(all, ip.Address.String())
			}
			return all, nil
		}
		if err := errors.Join(c.detach(ctx, p), p.newSandbox()); err != nil {
			return nil, err
		}
	}
}

// detach repeats DEL until it succeeds.
func (c *churn) detach(ctx context.Context, p *pod) error {
	for {
		_, err := c.callWith(ctx, "DEL", p)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("DEL of %s: %w", p.sandbox, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill kills the daemon's process at random moments until ctx ends, and sometimes the API server. Both
// run when it returns. The time between kills increases, because no daemon would become ready in a
// second on a slow machine.
func (c *churn) kill(ctx context.Context, random *rand.Rand, d *program) (daemons int) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+random.IntN(1000)) * time.Millisecond << min(daemons/12, 5)):
		}
		d.kill()
		daemons++
		if random.IntN(4) == 0 {
			if err := errors.Join(
				c.env.ControlPlane.Kill(context.WithoutCancel(ctx), controlplane.APIServer),
				c.env.ControlPlane.StartPart(context.WithoutCancel(ctx), controlplane.APIServer),
			); err != nil {
				c.t.Error(err)
			}
		}
		d.start()
	}
	return daemons
}

// No two sandboxes have the same address while daemon and API server are killed, and nothing remains at
// the end. The warm pool is enabled.
func TestChurnUnderKills(t *testing.T) {
	const workers, pods = 8, 6
	env := apitest.New(t)
	n := newNode(t, env)
	enableWarmPool(n)
	c := &churn{node: n, namespace: env.Namespace(t), registry: registry{owner: map[string]string{}}}
	c.nets = [2]*v1.ClusterNetwork{n.network("10.40.0.0/24"), n.network("10.41.0.0/28")}
	d := n.program()
	d.start()
	n.awaitReady()

	seed := random.Seed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for range pods {
				if err := c.runPod(ctx, random); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working, done := context.WithCancel(ctx)
	go func() { all.Wait(); done() }()
	t.Logf("%d Pods, %d kills of the daemon", workers*pods, c.kill(working, rand.New(rand.NewPCG(seed, workers)), d))
	// A stopped daemon leaves unwritten releases to the next one.
	for {
		n.awaitReady()
		n.awaitNoPendingWrites()
		d.stop()
		if len(c.records(t)) == 0 || ctx.Err() != nil {
			break
		}
		d.start()
	}
	for _, cn := range c.nets {
		n.awaitUnused(cn)
	}
	c.expectNothingLeft(t)
}

// awaitNoPendingWrites waits until the daemon has no pending record.
func (n *node) awaitNoPendingWrites() {
	n.t.Helper()
	eventually(n.t, "the daemon to have no pending record", func(ctx context.Context) error {
		pending, err := n.metric(ctx, "patchbay_publish_queue_depth")
		if err == nil && pending > 0 {
			err = fmt.Errorf("%v records are pending", pending)
		}
		return err
	})
}

// records reads the journal after the daemon's end.
func (c *churn) records(t *testing.T) []*attach.Record {
	t.Helper()
	j, err := journal.Open(c.path("journal.db"), journal.Options{Wait: eventuallyTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	records, err := j.List()
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// expectNothingLeft fails the test if records or links remain.
func (c *churn) expectNothingLeft(t *testing.T) {
	t.Helper()
	if records := c.records(t); len(records) > 0 {
		t.Errorf("got %d records in the journal, want none", len(records))
	}
	if links := macvlans(t); links != "" {
		t.Errorf("got links on the node, want none:\n%s", links)
	}
}
