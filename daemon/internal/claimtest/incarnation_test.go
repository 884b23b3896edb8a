// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A restarted daemon frees the addresses that are not in its journal and keeps the others. A delayed write
// of the earlier daemon fails.
func TestDaemonRestart(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns, net := env.Namespace(t), create(t, env, "10.0.0.0/24")
	key := network.KeyOf(net)
	first := start(t, env, ns, "node-0", 1, env.Config)
	var addresses []netip.Addr
	for range 3 {
		a, err := first.claim(t.Context(), net)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, a)
	}
	if _, err := first.publish(t.Context(), net, addresses[0], apitest.Name("ep")); err != nil {
		t.Fatal(err)
	}
	stale, err := newStore(t, env.Config, "node-0").Get(t.Context(), net.Ref) // the base of a delayed write
	if err != nil {
		t.Fatal(err)
	}
	first.Close()

	second := start(t, env, ns, "node-0", 2, env.Config)
	second.Resume([]allocator.Use{
		{Key: key, V4: addresses[0], Phase: allocator.Published},
		{Key: key, V4: addresses[1], Phase: allocator.Claimed},
	}, nil)
	if err := second.ReconcileEntries(t.Context(), key); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	eventually(t, "two of three addresses are in use", func() error { return checkUsed(t, env, net, 2) })
	if _, err := newStore(t, env.Config, "node-0").Update(t.Context(), stale); !errors.Is(err, status.ErrConflict) {
		t.Errorf("write of the earlier daemon: got %v, want ErrConflict", err)
	}
}
