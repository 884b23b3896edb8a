// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// objectStore is a store of one object that does nothing but compare its version.
type objectStore struct {
	allocator.Store // what an allocator without DanmEps does not call
	mu              sync.Mutex
	object          status.Object
	version         int
}

// Get implements allocator.Store.
func (c *objectStore) Get(context.Context, network.Ref) (*status.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return copyOf(c.object), nil
}

// Protect implements allocator.Store.
func (c *objectStore) Protect(ctx context.Context, o *status.Object, on bool) (*status.Object, error) {
	protected := *o
	protected.Protected = on
	return c.Update(ctx, &protected)
}

// Update implements allocator.Store.
func (c *objectStore) Update(_ context.Context, o *status.Object) (*status.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.ResourceVersion != c.object.ResourceVersion {
		return nil, status.ErrConflict
	}
	c.version++
	c.object = *copyOf(*o)
	c.object.ResourceVersion = strconv.Itoa(c.version)
	return copyOf(c.object), nil
}

// Endpoints implements allocator.Store.
func (c *objectStore) Endpoints(context.Context, network.Ref) ([]status.Endpoint, error) {
	return nil, nil
}

func copyOf(o status.Object) *status.Object {
	o.IPAM = o.IPAM.DeepCopy()
	return &o
}

// subnet is a network with a /16.
func subnet(name string) *network.Network {
	return &network.Network{
		Ref: network.Ref{Kind: "ClusterNetwork", Name: name}, UID: "uid-" + name, Generation: 1, Type: "macvlan",
		V4: &network.Subnet{CIDR: netip.MustParsePrefix("10.5.0.0/16")},
	}
}

// compareClaims times claims through the allocator of a node.
func compareClaims(ctx context.Context, o options) (measure.Table, error) {
	table := measure.Table{
		Title: fmt.Sprintf("one address through Allocator.Claim, store in memory; at most %d claims × %d runs: median (least–most)",
			o.claims, o.runs),
		Columns: []string{"ns/claim", "allocations/claim"}, LessIsBetter: true,
	}
	warm, cold := measure.Row{Name: "from the warm pool"}, measure.Row{Name: "by a write (in memory, no API server)"}
	for _, c := range []struct {
		row  *measure.Row
		size int
	}{{&warm, 2 * o.claims}, {&cold, -1}} {
		c.row.Columns = make([]measure.Series, 2)
		for range o.runs {
			ns, allocations, err := timeClaims(ctx, o.claims, c.size)
			if err != nil {
				return table, err
			}
			c.row.Columns[0] = append(c.row.Columns[0], ns)
			c.row.Columns[1] = append(c.row.Columns[1], allocations)
		}
	}
	table.Rows = []measure.Row{warm, cold}
	return table, nil
}

// timeClaims makes at most n claims one after the other and returns what each took. A
// warm pool is filled before, by as many at once.
func timeClaims(ctx context.Context, n, size int) (ns, allocations float64, err error) {
	net := subnet("speed")
	store := &objectStore{object: status.Object{Ref: net.Ref, UID: net.UID, Generation: 1, Network: net}}
	a := allocator.New(store, allocator.Config{Node: "node", NodeUID: "uid", Incarnation: 1, WarmPoolSize: size})
	defer a.Close()
	if size > 0 {
		if n, err = fillWarmPool(ctx, a, net, n); err != nil {
			return 0, 0, err
		}
	} else if err := claim(ctx, a, net); err != nil { // the first one builds the state
		return 0, 0, err
	}
	served := a.Stats().FromWarmPool
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	for range n {
		if err := claim(ctx, a, net); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	if served = a.Stats().FromWarmPool - served; size > 0 && served != int64(n) {
		return 0, 0, fmt.Errorf("the warm pool served %d of %d claims", served, n)
	}
	return float64(took.Nanoseconds()) / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n), nil
}

func claim(ctx context.Context, a *allocator.Allocator, net *network.Network) error {
	_, _, err := a.Claim(ctx, net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
	return err
}

// fillWarmPool lets n Pods come at once, and again until the allocator keeps enough for half of
// them. It returns how many claims the warm pool serves before more is wanted.
func fillWarmPool(ctx context.Context, a *allocator.Allocator, net *network.Network, n int) (ready int, err error) {
	for range 20 {
		errs := make(chan error, n)
		for range n {
			go func() { errs <- claim(ctx, a, net) }()
		}
		for range n {
			if err := <-errs; err != nil {
				return 0, err
			}
		}
		if ready = a.Stats().Warm / 2; ready >= n/4 {
			return ready, nil
		}
	}
	return 0, fmt.Errorf("%d addresses are held after 20 times %d claims", a.Stats().Warm, n)
}
