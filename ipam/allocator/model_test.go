// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// scenario is one run of the model: some nodes, each with Pods that come and go
// on one network, over a store with faults, while daemons die and start again, etcd
// goes back in time, and machines burn.
type scenario struct {
	V4, V6      string
	Nodes, Pods int // Pods per node
	Rounds      int // how often each Pod comes and goes
	Crashes     int // per node
	Faults      int // percent of requests, per kind of fault
	Hold        int // most addresses that a node holds; negative: none
	Restores    int // of older state of the cluster
	Fires       int // nodes that are lost for good, and one that comes back
	Seed        uint64
}

func genScenario(t *rapid.T) scenario {
	s := scenario{
		V4:       rapid.SampledFrom([]string{"10.0.0.0/30", "10.0.0.0/29", "10.0.0.0/28", "10.0.0.0/22"}).Draw(t, "v4"),
		V6:       rapid.SampledFrom([]string{"", "fd00::/126", "fd00::/64"}).Draw(t, "v6"),
		Nodes:    rapid.IntRange(1, 4).Draw(t, "nodes"),
		Pods:     rapid.IntRange(1, 4).Draw(t, "pods"),
		Rounds:   rapid.IntRange(1, 4).Draw(t, "rounds"),
		Crashes:  rapid.IntRange(0, 3).Draw(t, "crashes"),
		Faults:   rapid.SampledFrom([]int{0, 2, 10}).Draw(t, "faults"),
		Hold:     rapid.SampledFrom([]int{-1, 1, 8, 64}).Draw(t, "hold"),
		Restores: rapid.IntRange(0, 2).Draw(t, "restores"),
		Fires:    rapid.IntRange(0, 2).Draw(t, "fires"),
		Seed:     rapid.Uint64().Draw(t, "seed"),
	}
	return s
}

// Any interleaving of claims, uses, releases, crashes, conflicts, lost and late
// writes, older state and lost nodes gives no address twice, loses none, and frees
// none that is covered.
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

// A pool of exactly as many addresses as Pods serves them all, on three nodes that
// hold addresses.
func TestExactPool(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		m := &model{scenario: scenario{V4: "10.0.0.0/28", V6: "fd00::/124", Nodes: 2, Pods: 7, Rounds: 6, Faults: 5, Hold: 8, Seed: seed}}
		synctest.Test(t, func(*testing.T) { m.run() })
		for _, err := range m.problems {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

type model struct {
	scenario
	store *ipamtest.Fake
	plane plane
	net   *network.Network
	nodes []*node
	// collector is the controller's.
	collector *gc.Collector
	wg        sync.WaitGroup

	// backup excludes what cannot be half done when the cluster's state goes back.
	backup gate
	// quiet says that all Pods are gone.
	quiet atomic.Bool

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
	m.backup = make(gate, 64)
	m.store = ipamtest.NewFake()
	m.net = m.store.Create(testbed.ClusterNetwork(m.V4, m.V6))
	m.plane.Store = m.store
	m.collector = gc.NewCollector(&m.plane, gc.Config{})
	faulty := &ipamtest.Faulty{Store: &m.plane, Next: ipamtest.Dice(m.Seed, m.Faults, 20*time.Millisecond)}
	for i := range m.Nodes + m.Fires {
		n := &node{m: m, store: faulty, name: fmt.Sprintf("n%d", i), burns: i >= m.Nodes, journal: map[string]*record{}}
		n.start()
		m.nodes = append(m.nodes, n)
	}
	over := make(chan struct{})
	var background sync.WaitGroup
	for _, n := range m.nodes {
		m.wg.Go(n.live)
		background.Go(func() { n.look(over) })
		background.Go(func() { n.settle(over) })
	}
	background.Go(func() { m.audit(over) })
	m.timeTravel()
	m.wg.Wait()
	m.quiet.Store(true)
	faulty.Wait()
	for _, n := range m.nodes {
		n.sweepUp()
	}
	// Holds and rests come to their ends, and the controller looks once more.
	time.Sleep(3 * time.Minute)
	close(over)
	background.Wait()
	synctest.Wait()
	for _, n := range m.nodes {
		n.daemon().Close()
	}
	for _, err := range m.store.Problems() {
		// What lost machines leave is the controller's to find, and an older state has
		// DanmEps of Pods that are long gone.
		if m.Restores == 0 && (m.Fires == 0 || !errors.Is(err, ipamtest.ErrLeak)) {
			m.problems = append(m.problems, err)
		}
	}
	m.nothingLeft()
}

func (m *model) nothingLeft() {
	o := m.store.Object(m.net.Ref)
	if o.IPAM == nil {
		return
	}
	v4, err4 := ipamtest.Bits(o.IPAM.V4)
	v6, err6 := ipamtest.Bits(o.IPAM.V6)
	if err := errors.Join(err4, err6); err != nil || len(v4)+len(v6)+len(o.IPAM.Held)+len(m.live) > 0 || ipamtest.Allocated(o.IPAM) != 0 {
		m.failf("left: bits %v %v, entries %v, interfaces %v, allocated %d, %v", v4, v6, o.IPAM.Held, m.live, ipamtest.Allocated(o.IPAM), err)
	}
}

// audit is the controller.
func (m *model) audit(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(30 * time.Second):
		}
		for _, n := range m.nodes {
			if n.lost() {
				n.bury(m.collector)
			}
		}
		found, err := m.collector.RepairBitmap(context.Background(), network.KeyOf(m.net))
		if err != nil && !retry(err) {
			m.failf("audit: %v", err)
		}
		// What lost machines had, and older state, may be somebody else's by now.
		if len(found.Conflicts) > 0 && m.Restores+m.Fires == 0 {
			m.failf("audit: no address has two owners, and it found %v", found.Conflicts)
		}
		if _, err := m.collector.Recover(context.Background(), network.KeyOf(m.net), m.names(), nil); err != nil && !retry(err) {
			m.failf("recover: %v", err)
		}
	}
}

// names are those of the nodes that are there.
func (m *model) names() []string {
	var names []string
	for _, n := range m.nodes {
		if !n.lost() {
			names = append(names, n.name)
		}
	}
	return names
}

// timeTravel restores older states of the cluster.
func (m *model) timeTravel() {
	for range m.Restores {
		m.sleep(200 * time.Millisecond)
		old := m.store.Snapshot()
		m.sleep(200 * time.Millisecond)
		m.restore(old)
	}
}

// restore goes back. Until then every node has seen what there was, and none starts
// anew before the first has found out: one that knows nothing cannot.
func (m *model) restore(old ipamtest.Snapshot) {
	m.backup.Lock()
	defer m.backup.Unlock()
	version := m.store.Object(m.net.Ref).ResourceVersion
	m.collector.ObserveVersion(network.KeyOf(m.net), version)
	for _, n := range m.nodes {
		n.daemon().ObserveVersion(network.KeyOf(m.net), version)
	}
	// etcd is restored while no API server runs: no request spans that.
	m.plane.down.Store(true)
	time.Sleep(time.Second)
	changed := m.store.Restore(old)
	m.plane.down.Store(false)
	for _, n := range m.nodes {
		n.miss()
	}
	if !changed {
		return
	}
	// A change whose writer got no answer is known to nobody, and missed by nobody.
	for range 100 {
		o := m.store.Object(m.net.Ref)
		if o.Recovering() {
			return
		}
		for _, n := range m.nodes {
			n.daemon().ObserveVersion(network.KeyOf(m.net), o.ResourceVersion)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// gate is a lock for readers and one writer. Virtual time goes on while somebody
// waits for it, which it does not for a mutex.
type gate chan struct{}

// RLock lets others in, but not the writer.
func (g gate) RLock() { g <- struct{}{} }

// RUnlock undoes RLock.
func (g gate) RUnlock() { <-g }

// Lock lets nobody in.
func (g gate) Lock() {
	for range cap(g) {
		g.RLock()
	}
}

// Unlock undoes Lock.
func (g gate) Unlock() {
	for range cap(g) {
		g.RUnlock()
	}
}

// plane is the store, unless the control plane is down.
type plane struct {
	allocator.Store
	down atomic.Bool
}

func (p *plane) Get(ctx context.Context, ref network.Ref) (*status.Object, error) {
	if p.down.Load() {
		return nil, ipamtest.ErrFault
	}
	return p.Store.Get(ctx, ref)
}

func (p *plane) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	if p.down.Load() {
		return nil, ipamtest.ErrFault
	}
	return p.Store.Update(ctx, o)
}

func (p *plane) Protect(ctx context.Context, o *status.Object, on bool) (*status.Object, error) {
	if p.down.Load() {
		return nil, ipamtest.ErrFault
	}
	return p.Store.Protect(ctx, o, on)
}

func (p *plane) Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error) {
	if p.down.Load() {
		return nil, ipamtest.ErrFault
	}
	return p.Store.Endpoints(ctx, ref)
}

// retry reports whether the controller tries again later.
func retry(err error) bool {
	return errors.Is(err, status.ErrTryAgain) || errors.Is(err, ipamtest.ErrFault)
}
