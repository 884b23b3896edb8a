// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A pool with exactly as many addresses as Pods serves all of them, and no further one.
func TestExactPool(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	const size = 30 // addresses of a /27
	net, r := create(t, env, "10.0.0.0/27"), newRegistry()
	ns := env.Namespace(t)
	var nodes []*node
	for i := range 3 {
		nodes = append(nodes, start(t, env, ns, fmt.Sprintf("node-%d", i), 1, env.Config))
	}
	errs := make([]error, size)
	var all sync.WaitGroup
	for i := range size {
		all.Go(func() {
			a, err := nodes[i%len(nodes)].claimWithRetry(t.Context(), net)
			if err == nil {
				err = r.acquire(network.KeyOf(net), a, "pod")
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := checkUsed(t, env, net, size); err != nil {
		t.Error(err)
	}
	if a, err := nodes[0].claim(t.Context(), net); !errors.Is(err, allocator.ErrExhausted) {
		t.Errorf("claim on a full network: got %v and error %v, want ErrExhausted", a, err)
	}

	// Another node can claim a freed address.
	freed := firstEntryAddress(t, env, net, nodes[1].name)
	nodes[1].Discard(net, freed, netip.Addr{})
	eventually(t, "another node claims the freed address", func() error {
		a, err := nodes[2].claim(t.Context(), net)
		if err == nil && a != freed {
			t.Errorf("claim after discard: got %s, want %s", a, freed)
		}
		return err
	})
}

// firstEntryAddress returns the first address of the node's entry.
func firstEntryAddress(t *testing.T, env *apitest.Env, n *network.Network, name string) netip.Addr {
	t.Helper()
	o, err := readNetwork(t, env, n)
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := ipam.ParseRanges(o.IPAM.Held[name].V4)
	if err != nil {
		t.Fatal(err)
	}
	for a := range ranges.All() {
		return a
	}
	t.Fatalf("%s has no address in its entry", name)
	return netip.Addr{}
}
