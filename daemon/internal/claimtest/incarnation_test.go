// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A daemon that comes back frees what its journal does not know, keeps the rest, and no
// delayed write of its former life counts.
func TestDaemonRestart(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns, net := env.Namespace(t), create(t, env, "10.0.0.0/24")
	key := claims.KeyOf(net)
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
	stale, err := newStore(t, env.Config, "node-0").Get(t.Context(), net.Ref) // what a delayed write was planned on
	if err != nil {
		t.Fatal(err)
	}
	first.Close()

	second := start(t, env, ns, "node-0", 2, env.Config)
	second.Resume([]claims.Use{
		{Key: key, V4: addresses[0], Phase: claims.Published},
		{Key: key, V4: addresses[1], Phase: claims.Claimed},
	}, nil)
	if err := second.Settle(t.Context(), key); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	eventually(t, "two of three are left", func() error { return checkUsed(t, env, net, 2) })
	if _, err := newStore(t, env.Config, "node-0").Update(t.Context(), stale); !errors.Is(err, claims.ErrConflict) {
		t.Errorf("a write of the former life: got %v, want ErrConflict", err)
	}
}
