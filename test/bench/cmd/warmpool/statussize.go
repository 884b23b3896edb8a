// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// compareSizes returns the bytes of status, as JSON.
func compareSizes(ctx context.Context, o options) (measure.Table, error) {
	table := measure.Table{
		Title: fmt.Sprintf("bytes of a network's status as JSON; %d networks (/16), of each %d nodes have addresses: median (least–most) of the networks",
			o.networks, o.nodes),
		Columns: []string{"bytes", "held/node"}, Alone: true,
	}
	for _, c := range []struct {
		name          string
		claims, churn int
	}{
		{"20 Pods started at once on each node", 20, 0},
		{"2 Pods on each node", 2, 0},
		{"20 Pods on each node, half of them changed 10 times", 20, 10},
	} {
		sizes, held, err := sizesOf(ctx, o, c.claims, c.churn)
		if err != nil {
			return table, err
		}
		table.Rows = append(table.Rows, measure.Row{Name: c.name, Columns: []measure.Series{sizes, held}})
	}
	for _, b := range bitmaps() {
		size, err := sizeOf(withBitmap(b))
		if err != nil {
			return table, err
		}
		table.Rows = append(table.Rows, measure.Row{Name: b.name, Columns: []measure.Series{{size}, {0}}})
	}
	return table, nil
}

// sizesOf has each node claim addresses of each network, and gives half of them back and
// claims as many again, churn times. It returns the size of each status then.
func sizesOf(ctx context.Context, o options, pods, churn int) (sizes, held measure.Series, err error) {
	sizes, held = make(measure.Series, o.networks), make(measure.Series, o.networks)
	errs := make([]error, o.networks)
	slots := make(chan struct{}, 4)
	var all sync.WaitGroup
	for i := range o.networks {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			sizes[i], held[i], errs[i] = networkSizes(ctx, o, i, pods, churn)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return sizes, held, nil
}

// networkSizes is one network.
func networkSizes(ctx context.Context, o options, i, pods, churn int) (size, held float64, err error) {
	net := subnet("size-" + strconv.Itoa(i))
	store := &objectStore{object: status.Object{Ref: net.Ref, UID: net.UID, Generation: 1, Network: net}}
	dice := rand.New(rand.NewPCG(uint64(i), 1))
	nodes := make([]*node, o.nodes)
	for n := range nodes {
		name := fmt.Sprintf("worker-%02d.example", n)
		nodes[n] = &node{net: net, Allocator: allocator.New(store, allocator.Config{
			Node: name, NodeUID: "7f0c4b1e-2f4d-4b5e-9d59-1f1f5e0f8a" + strconv.Itoa(10+n), Incarnation: 1, Cooldown: -1,
			NodeCount: func() int { return o.nodes },
		})}
		defer nodes[n].Close()
	}
	for round := range churn + 1 {
		for _, at := range dice.Perm(o.nodes) {
			n := nodes[at]
			if round > 0 {
				n.detachPods(dice, pods/2)
			}
			if err := n.attachPods(ctx, pods-len(n.pods)); err != nil {
				return 0, 0, err
			}
		}
	}
	for _, n := range nodes {
		n.publishAll()
		if err := n.ReconcileEntries(ctx, network.KeyOf(net)); err != nil {
			return 0, 0, err
		}
		held += float64(n.Stats().Warm) / float64(o.nodes)
	}
	object, err := store.Get(ctx, net.Ref)
	if err != nil {
		return 0, 0, err
	}
	size, err = sizeOf(object.IPAM)
	return size, held, err
}

// node is a node's Pods on one network.
type node struct {
	*allocator.Allocator
	net  *network.Network
	pods []netip.Addr
}

// attachPods attaches n Pods at once.
func (n *node) attachPods(ctx context.Context, count int) error {
	addrs, errs := make([]netip.Addr, count), make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			addrs[i], _, errs[i] = n.Claim(ctx, n.net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	n.pods = append(n.pods, addrs...)
	return nil
}

// detachPods detaches some of the Pods, before they had a DanmEp.
func (n *node) detachPods(dice *rand.Rand, count int) {
	dice.Shuffle(len(n.pods), func(i, j int) { n.pods[i], n.pods[j] = n.pods[j], n.pods[i] })
	for _, a := range n.pods[:count] {
		n.Discard(n.net, a, netip.Addr{})
	}
	n.pods = n.pods[count:]
}

// publishAll says that all Pods have DanmEps: what is left in the entry is held.
func (n *node) publishAll() {
	for i, a := range n.pods {
		n.MarkPublished(network.KeyOf(n.net), "pod-"+strconv.Itoa(i), a, netip.Addr{})
	}
}

// sizeOf encodes a network's status.
func sizeOf(status *v1.IPAMStatus) (float64, error) {
	raw, err := json.Marshal(v1.NetworkStatus{IPAM: status})
	if err != nil {
		return 0, fmt.Errorf("encode status: %w", err)
	}
	return float64(len(raw)), nil
}

// bitmap is one whose size is of interest.
type bitmap struct {
	name   string
	bitmap *v1.AddressBitmap
}

func withBitmap(b bitmap) *v1.IPAMStatus { return &v1.IPAMStatus{V4: b.bitmap} }

// bitmaps are those of a /16 without node entries.
func bitmaps() []bitmap {
	// New refuses no /16.
	full, _ := ipam.New(slash16())
	random, _ := ipam.New(slash16())
	packed, _ := ipam.New(slash16())
	full.AllocateN(nil, 1<<16)
	packed.AllocateN(nil, 1<<16/100)
	dice := rand.New(rand.NewPCG(1, 2))
	for random.AllocatedDynamic() < 1<<16/100 {
		random.MarkAllocated(netip.AddrFrom4([4]byte{10, 5, byte(dice.Uint32()), byte(dice.Uint32())}))
	}
	return []bitmap{
		{"no warm pools, /16 full", encode(full)},
		{"no warm pools, /16 1 % used at random", encode(random)},
		{"no warm pools, /16 1 % used, packed", encode(packed)},
	}
}

func slash16() ipam.Config { return ipam.Config{CIDR: netip.MustParsePrefix("10.5.0.0/16")} }

func encode(p *ipam.Pool) *v1.AddressBitmap {
	s := p.Encode()
	return &v1.AddressBitmap{CIDR: s.CIDR, Cursor: s.Cursor, Allocated: p.Allocated(), Pages: s.Pages}
}
