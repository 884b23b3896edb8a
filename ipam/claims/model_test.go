// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
	"github.com/patchbay-cni/patchbay/network"
)

// scenario is one run of the model: some nodes, each with Pods that come and go
// on one network, over a store with faults, while daemons die and start again.
type scenario struct {
	V4, V6      string
	Nodes, Pods int // Pods per node
	Rounds      int // how often each Pod comes and goes
	Crashes     int // per node
	Faults      int // percent of requests, per kind of fault
	Seed        uint64
}

func genScenario(t *rapid.T) scenario {
	s := scenario{
		V4:      rapid.SampledFrom([]string{"10.0.0.0/30", "10.0.0.0/29", "10.0.0.0/28", "10.0.0.0/22"}).Draw(t, "v4"),
		V6:      rapid.SampledFrom([]string{"", "fd00::/126", "fd00::/64"}).Draw(t, "v6"),
		Nodes:   rapid.IntRange(1, 4).Draw(t, "nodes"),
		Pods:    rapid.IntRange(1, 4).Draw(t, "pods"),
		Rounds:  rapid.IntRange(1, 4).Draw(t, "rounds"),
		Crashes: rapid.IntRange(0, 3).Draw(t, "crashes"),
		Faults:  rapid.SampledFrom([]int{0, 2, 10}).Draw(t, "faults"),
		Seed:    rapid.Uint64().Draw(t, "seed"),
	}
	return s
}

// Any interleaving of claims, uses, releases, crashes, conflicts, lost and late
// writes gives no address twice, loses none, and frees none that is covered.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := genScenario(rt)
		m := &model{scenario: s}
		synctest.Test(t, func(*testing.T) { m.run() })
		for _, err := range m.problems {
			rt.Error(err)
		}
	})
}

// A pool of exactly as many addresses as Pods serves them all, on three nodes.
func TestExactPool(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		m := &model{scenario: scenario{V4: "10.0.0.0/28", V6: "fd00::/124", Nodes: 2, Pods: 7, Rounds: 6, Faults: 5, Seed: seed}}
		synctest.Test(t, func(*testing.T) { m.run() })
		for _, err := range m.problems {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

type model struct {
	scenario
	store *ipamtest.Fake
	net   *network.Network
	wg    sync.WaitGroup

	mu       sync.Mutex
	dice     *rand.Rand
	live     map[netip.Addr]string // addresses on interfaces, and whose
	problems []error
}

func (m *model) failf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = append(m.problems, fmt.Errorf(format, args...))
}

// chance draws n times out of 100.
func (m *model) chance(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dice.IntN(100) < n
}

func (m *model) sleep(most time.Duration) {
	m.mu.Lock()
	d := time.Duration(m.dice.Int64N(int64(most)))
	m.mu.Unlock()
	time.Sleep(d)
}

// run plays the scenario to its end, where nothing may be left.
func (m *model) run() {
	m.dice = rand.New(rand.NewPCG(m.Seed, 0))
	m.live = map[netip.Addr]string{}
	m.store = ipamtest.NewFake()
	m.net = m.store.Create(clusterNetwork(m.V4, m.V6))
	faulty := &ipamtest.Faulty{Store: m.store, Next: ipamtest.Dice(m.Seed, m.Faults, 20*time.Millisecond)}
	nodes := make([]*node, m.Nodes)
	for i := range nodes {
		nodes[i] = &node{m: m, store: faulty, name: fmt.Sprintf("n%d", i), journal: map[string]*record{}}
		m.wg.Go(nodes[i].live)
	}
	over := make(chan struct{})
	var settlers sync.WaitGroup
	for _, n := range nodes {
		settlers.Go(func() { n.settle(over) })
	}
	m.wg.Wait()
	close(over)
	settlers.Wait()
	faulty.Wait()
	for _, n := range nodes {
		n.sweepUp()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, n := range nodes {
		n.a.Close()
	}
	m.problems = append(m.problems, m.store.Problems()...)
	m.nothingLeft()
}

func (m *model) nothingLeft() {
	o := m.store.Object(m.net.Ref)
	if o.IPAM == nil {
		return
	}
	v4, err4 := ipamtest.Bits(o.IPAM.V4)
	v6, err6 := ipamtest.Bits(o.IPAM.V6)
	if err := errors.Join(err4, err6); err != nil || len(v4)+len(v6)+len(o.IPAM.Held)+len(m.live) > 0 || o.Allocated != 0 {
		m.failf("left: bits %v %v, entries %v, interfaces %v, allocated %d, %v", v4, v6, o.IPAM.Held, m.live, o.Allocated, err)
	}
}

// record is a Pod in a node's journal.
type record struct {
	id     string
	a4, a6 netip.Addr
	phase  claims.Phase
}

// node is a daemon with its journal, which survives its crashes.
type node struct {
	m     *model
	store claims.Store
	name  string

	mu      sync.Mutex
	a       *claims.Allocator
	life    int64
	journal map[string]*record
}

// live starts the daemon, lets Pods come and go, and kills it now and then.
func (n *node) live() {
	n.start()
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
		n.mu.Lock()
		n.a.Close()
		n.mu.Unlock()
		n.start()
	}
	pods.Wait()
}

// start starts a life from the journal.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life++
	var uses []claims.Use
	for _, r := range n.journal {
		uses = append(uses, claims.Use{Key: claims.KeyOf(n.m.net), Owner: r.id, V4: r.a4, V6: r.a6, Phase: r.phase})
	}
	n.a = claims.New(n.store, claims.Config{Node: n.name, NodeUID: n.name, Life: n.life, Hold: -1, Cool: -1})
	n.a.Resume(uses, nil)
}

// daemon returns the allocator of the present life.
func (n *node) daemon() *claims.Allocator {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.a
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

// sweepUp lets the last life find what its former ones left.
func (n *node) sweepUp() {
	for {
		err := n.daemon().Settle(context.Background(), claims.KeyOf(n.m.net))
		if err == nil {
			return
		}
		if !errors.Is(err, claims.ErrTryAgain) && !errors.Is(err, claims.ErrClosed) {
			n.m.failf("settle: %v", err)
			return
		}
	}
}
