// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"testing"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// cell is a store of one object that checks nothing but its version: the fake's
// check of each bit would cost more than what is measured.
type cell struct {
	mu     sync.Mutex
	object status.Object
	writes int
}

func (c *cell) Get(context.Context, network.Ref) (*status.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.object
	o.IPAM = o.IPAM.DeepCopy()
	return &o, nil
}

func (c *cell) Update(_ context.Context, o *status.Object) (*status.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.ResourceVersion != c.object.ResourceVersion {
		return nil, status.ErrConflict
	}
	c.writes++
	c.object = *o
	c.object.ResourceVersion = strconv.Itoa(c.writes)
	return o, nil
}

func (c *cell) Protect(_ context.Context, o *status.Object, _ bool) (*status.Object, error) {
	return o, nil
}

func (c *cell) Endpoints(context.Context, network.Ref) ([]status.Endpoint, error) { return nil, nil }

// BenchmarkCommit is what our side of a commit costs, without an API server:
// read, plan and write a claim on a /16 of which half is in use, and its way back
// with the next; alone, and beside the warm pools of 100 other nodes.
func BenchmarkCommit(b *testing.B) {
	for name, nodes := range map[string]int{"Alone": 0, "Beside100Nodes": 100} {
		b.Run(name, func(b *testing.B) { benchmarkCommit(b, nodes) })
	}
}

func benchmarkCommit(b *testing.B, nodes int) {
	b.Helper()
	pool, err := ipam.New(ipam.Config{CIDR: netip.MustParsePrefix("10.0.0.0/16")})
	if err != nil {
		b.Fatal(err)
	}
	used := pool.AllocateN(nil, 1<<15)
	half := pool.Encode()
	net := testbed.ClusterNetwork("10.0.0.0/16", "")
	store := &cell{object: status.Object{Ref: net.Ref, Network: net, Protected: true, IPAM: &v1.IPAMStatus{
		V4:   &v1.AddressBitmap{CIDR: half.CIDR, Cursor: half.Cursor, Allocated: 1 << 15, Pages: half.Pages},
		Held: map[string]v1.HeldAddresses{},
	}}}
	for i := range nodes {
		var warm ipam.Ranges // 16 addresses in four ranges
		for k := range 16 {
			warm.Add(used[i*32+k+k/4])
		}
		store.object.IPAM.Held[fmt.Sprint("other-", i)] = v1.HeldAddresses{UID: fmt.Sprint("uid-", i), Seq: 1, V4: warm.String()}
	}
	a := allocator.New(store, allocator.Config{Node: "n1", WarmPoolSize: -1, Cooldown: -1}) // each claim is a write
	defer a.Close()
	b.ReportAllocs()
	for b.Loop() {
		x, _, err := a.Claim(b.Context(), net, testbed.Dynamic(), testbed.None())
		if err != nil {
			b.Fatal(err)
		}
		a.Discard(net, x, testbed.NoAddr())
	}
	b.ReportMetric(float64(store.writes)/float64(b.N), "writes/op")
}

// A claim from the warm pool, alone and by all processors: it takes no lock, makes no request
// and allocates nothing.
func BenchmarkWarmClaim(b *testing.B) {
	net := testbed.ClusterNetwork("", "")
	store := &cell{object: status.Object{Ref: net.Ref, Network: net, Protected: true, IPAM: &v1.IPAMStatus{}}}
	a := allocator.New(store, allocator.Config{Node: "n1"})
	defer a.Close()
	claim := func() {
		if _, _, err := a.Claim(b.Context(), net, testbed.None(), testbed.None()); err != nil {
			b.Error(err)
		}
	}
	claim()
	claim() // the warm pool is open
	b.ReportAllocs()
	b.Run("Alone", func(b *testing.B) {
		for b.Loop() {
			claim()
		}
	})
	b.Run("Parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				claim()
			}
		})
	})
}

// Claims of warm addresses allocate nothing.
func TestWarmClaimAllocatesNothing(t *testing.T) {
	net := testbed.ClusterNetwork("10.0.0.0/16", "")
	store := &cell{object: status.Object{Ref: net.Ref, Network: net, Protected: true, IPAM: &v1.IPAMStatus{}}}
	a := allocator.New(store, allocator.Config{Node: "n1"})
	defer a.Close()
	for a.Stats().Warm < 48 { // each claim raises the demand
		if _, _, err := a.Claim(t.Context(), net, testbed.Dynamic(), testbed.None()); err != nil {
			t.Fatal(err)
		}
	}
	// A refill of the warm pool may allocate meanwhile: the runtime counts allocations of all goroutines.
	least := math.Inf(1)
	for range 3 {
		before := a.Stats().FromWarmPool
		allocations := testing.AllocsPerRun(15, func() {
			if _, _, err := a.Claim(t.Context(), net, testbed.Dynamic(), testbed.None()); err != nil {
				t.Error(err)
			}
		})
		if served := a.Stats().FromWarmPool - before; served != 16 {
			t.Errorf("%d of 16 claims from the warm pool", served)
		}
		least = min(least, allocations)
	}
	if least != 0 {
		t.Errorf("%v allocations per claim", least)
	}
}
