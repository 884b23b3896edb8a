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

// registry knows who has which address now.
type registry struct {
	mu    sync.Mutex
	owner map[string]string
}

// take notes an address's owner, and reports one that had it before.
func (r *registry) take(address, owner string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, ok := r.owner[address]; ok {
		return fmt.Errorf("address %s of %s is also %s's", address, owner, other)
	}
	r.owner[address] = owner
	return nil
}

func (r *registry) drop(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owner, address)
}

// churn is many sandboxes that come and go, as a runtime makes them: an ADD that
// failed is followed by DEL and a new sandbox.
type churn struct {
	*node
	namespace string
	nets      [2]*v1.ClusterNetwork
	registry  registry
}

// pod brings one Pod up and takes it down.
func (c *churn) pod(ctx context.Context, random *rand.Rand) error {
	p, err := c.podWith(ctx, c.namespace, fmt.Sprintf(`[{"clusterNetwork": %q, "ip": "dynamic"}, {"clusterNetwork": %q, "ip": "dynamic"}]`,
		c.nets[0].Name, c.nets[1].Name))
	if err != nil {
		return err
	}
	addresses, err := c.up(ctx, p)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if err := c.registry.take(a, p.sandbox); err != nil {
			return err
		}
	}
	if got := p.eth0(c.t); got != addresses[0] {
		return fmt.Errorf("eth0 of %s has %s, the result says %v", p.sandbox, got, addresses)
	}
	time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	if random.IntN(5) == 0 { // the sandbox died before its DEL
		_ = ip("netns", "delete", p.sandbox)
	}
	for _, a := range addresses {
		c.registry.drop(a)
	}
	return c.down(ctx, p)
}

// up asks until the sandbox has its interfaces; it returns their addresses.
func (c *churn) up(ctx context.Context, p *pod) ([]string, error) {
	for {
		result, err := c.callWith(ctx, "ADD", p)
		if err == nil {
			var all []string
			for _, ip := range result.IPs {
				all = append(all, ip.Address.String())
			}
			return all, nil
		}
		if err := errors.Join(c.down(ctx, p), p.again()); err != nil {
			return nil, err
		}
	}
}

// down asks until DEL is done.
func (c *churn) down(ctx context.Context, p *pod) error {
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

// kill ends the daemon's program at random moments until ctx ends, and the API
// server now and then; both are there again when it returns. The daemons live longer
// and longer: on a slow machine none would get anywhere in a second.
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

// No address is on two live sandboxes at a time, and nothing is left at an orderly
// end, whatever was killed before. Addresses are kept ready meanwhile.
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
				if err := c.pod(ctx, random); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working, done := context.WithCancel(ctx)
	go func() { all.Wait(); done() }()
	t.Logf("%d Pods, the daemon was killed %d times", workers*pods, c.kill(working, rand.New(rand.NewPCG(seed, workers)), d))
	// A daemon that is ended leaves the releases that it has not written to the next one.
	for {
		n.awaitReady()
		n.awaitNoPendingWrites()
		d.end()
		if len(c.records(t)) == 0 || ctx.Err() != nil {
			break
		}
		d.start()
	}
	for _, cn := range c.nets {
		n.awaitUnused(cn)
	}
	c.leftovers(t)
}

// awaitNoPendingWrites waits until the daemon has written all that it knows of.
func (n *node) awaitNoPendingWrites() {
	n.t.Helper()
	eventually(n.t, "the daemon to have written all", func(ctx context.Context) error {
		pending, err := n.metric(ctx, "patchbay_publisher_pending")
		if err == nil && pending > 0 {
			err = fmt.Errorf("%v records are pending", pending)
		}
		return err
	})
}

// records reads the journal of a daemon that has ended.
func (c *churn) records(t *testing.T) []*attach.Record {
	t.Helper()
	j, err := journal.Open(c.path("journal.db"), journal.Options{Wait: patience})
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

// leftovers looks for what no release took away.
func (c *churn) leftovers(t *testing.T) {
	t.Helper()
	if records := c.records(t); len(records) > 0 {
		t.Errorf("journal has %d records, want none", len(records))
	}
	if links := macvlans(t); links != "" {
		t.Errorf("links are left on the node:\n%s", links)
	}
}
