// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// record is a Pod in a node's journal.
type record struct {
	id     string
	a4, a6 netip.Addr
	static bool
	phase  allocator.Phase
}

// node is a daemon with its journal, which survives its crashes.
type node struct {
	m     *model
	store allocator.Store
	name  string
	// burns says that the machine is lost in the middle.
	burns bool

	mu      sync.Mutex
	a       *allocator.Allocator
	life    int64
	dead    bool
	journal map[string]*record
	seqs    map[network.Key]int64
}

// live lets Pods come and go, and kills the daemon now and then.
func (n *node) live() {
	var pods sync.WaitGroup
	for i := range n.m.Pods {
		pods.Go(func() {
			for round := range n.m.Rounds {
				n.pod(fmt.Sprintf("%s-%d-%d", n.name, i, round))
			}
		})
	}
	for range n.m.Crashes {
		n.m.sleep(300 * time.Millisecond)
		n.restart()
	}
	if n.burns {
		n.m.sleep(300 * time.Millisecond)
		n.burn()
	}
	pods.Wait()
}

// restart ends a life, in order or not, and begins the next. It is not at the moment
// when the cluster's state goes back.
func (n *node) restart() {
	n.m.backup.RLock()
	defer n.m.backup.RUnlock()
	a := n.daemon()
	if n.m.chance(30) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = a.ReleaseWarmPool(ctx) // its next life gives back what this one could not
		cancel()
	}
	n.mu.Lock()
	a.Close()
	n.mu.Unlock()
	n.start()
}

// start starts a life from the journal.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life++
	var uses []allocator.Use
	for _, r := range n.journal {
		uses = append(uses, allocator.Use{
			Key: network.KeyOf(n.m.net), Owner: r.id, V4: r.a4, V6: r.a6, Phase: r.phase, Static4: r.static,
		})
	}
	n.a = allocator.New(n.store, allocator.Config{
		Node: n.name, NodeUID: n.name, Incarnation: n.life, JournalSeq: n.remember,
		WarmPoolSize: n.m.Hold, Cooldown: 200 * time.Millisecond, WarmPoolIdleTimeout: 10 * time.Second,
	})
	n.a.Resume(uses, n.seqs)
}

// remember is the journal of seqs.
func (n *node) remember(key network.Key, seq int64) error {
	if n.seqs == nil {
		n.seqs = map[network.Key]int64{}
	}
	n.seqs[key] = seq
	return nil
}

// daemon returns the allocator of the present life.
func (n *node) daemon() *allocator.Allocator {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.a
}

func (n *node) lost() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead
}

// burn loses the machine: no interface is left.
func (n *node) burn() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = true
	n.a.Close()
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	for _, r := range n.journal {
		for _, a := range []netip.Addr{r.a4, r.a6} {
			if n.m.live[a] == r.id {
				delete(n.m.live, a)
			}
		}
	}
}

// bury is what the controller does for a node whose Node object is gone, time and
// again: an older state may bring its traces back.
func (n *node) bury(collector *gc.Collector) {
	for _, ep := range n.endpoints() {
		n.m.store.RemoveEndpoint(ep.Namespace, ep.Name)
	}
	if _, err := collector.FreeGoneNodes(context.Background(), network.KeyOf(n.m.net), map[string]string{n.name: n.name}); err != nil && !retry(err) {
		n.m.failf("evict: %v", err)
	}
}

// look is the node's watch of the network's metadata.
func (n *node) look(over <-chan struct{}) {
	for seen := ""; ; {
		pace := 30 * time.Millisecond
		if n.m.quiet.Load() {
			pace = 2 * time.Second
		}
		select {
		case <-over:
			return
		case <-time.After(pace):
		}
		if n.lost() {
			return
		}
		o := n.m.store.Object(n.m.net.Ref)
		if o.ResourceVersion == seen {
			continue
		}
		seen = o.ResourceVersion
		n.daemon().ObserveVersion(network.KeyOf(n.m.net), seen)
		if o.IPAM != nil && o.IPAM.Recovering != nil {
			n.removeOrphans()
			n.daemon().ReportToRecovery(network.KeyOf(n.m.net))
		}
	}
}

// settle is what the daemon does now and then: writes of a former life may have
// been late.
func (n *node) settle(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Minute):
			n.sweepUp()
		}
	}
}

// sweepUp lets the last life find what its former ones left, and DanmEps of Pods that
// are not there any more: an older state of the cluster has them.
func (n *node) sweepUp() {
	for !n.lost() {
		err := n.daemon().ReconcileEntries(context.Background(), network.KeyOf(n.m.net))
		if err == nil {
			n.removeOrphans()
			return
		}
		if !errors.Is(err, status.ErrTryAgain) && !errors.Is(err, allocator.ErrClosed) {
			n.m.failf("settle: %v", err)
			return
		}
	}
}

func (n *node) removeOrphans() {
	for _, ep := range n.endpoints() {
		n.mu.Lock()
		_, known := n.journal[ep.Name]
		n.mu.Unlock()
		if known {
			continue
		}
		n.m.store.RemoveEndpoint(ep.Namespace, ep.Name)
		key := network.KeyOf(n.m.net)
		if err := n.daemon().Free(context.Background(), key, ep.Name, ep.V4, ep.V6); err != nil && !errors.Is(err, status.ErrTryAgain) && !errors.Is(err, allocator.ErrClosed) {
			n.m.failf("free orphan: %v", err)
		}
		n.daemon().Forget(key, ep.Name, ep.V4, ep.V6)
	}
}

// endpoints are the DanmEps of this node.
func (n *node) endpoints() []status.Endpoint {
	all, err := n.m.store.Endpoints(context.Background(), n.m.net.Ref)
	if err != nil {
		n.m.failf("list: %v", err)
	}
	return slices.DeleteFunc(all, func(e status.Endpoint) bool { return e.Node != n.name })
}

// miss is the node's watch of its DanmEps, after the cluster's state went back.
func (n *node) miss() {
	there := map[string]bool{}
	for _, ep := range n.endpoints() {
		there[ep.Name] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return
	}
	for _, r := range n.journal {
		if r.phase != allocator.Published || there[r.id] {
			continue
		}
		r.phase = allocator.Claimed
		a := n.a
		a.DanmEpMissing(network.KeyOf(n.m.net), r.id, r.a4, r.a6)
		n.m.wg.Go(func() {
			_ = a.ReconcileEntries(context.Background(), network.KeyOf(n.m.net)) // when it fails, the next life covers the address
			n.publish(r)
		})
	}
}
