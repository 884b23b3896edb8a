// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"net/netip"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
	"github.com/patchbay-cni/patchbay/network"
)

// Before the allocator is there, everything that needs it can be tried again,
// and what needs no answer is kept.
func TestAddressesBeforeOpen(t *testing.T) {
	t.Parallel()
	store := ipamtest.NewFake()
	net, err := network.From(&v1.ClusterNetwork{Spec: v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{CIDR: "10.9.0.0/24"}}})
	if err != nil {
		t.Fatal(err)
	}
	a := &Addresses{}
	if _, _, err := a.Claim(t.Context(), net, attach.Want{Dynamic: true}, attach.Want{}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Claim: got error %v, want ErrTryAgain", err)
	}
	if err := a.Return(t.Context(), claims.KeyOf(net), "ep", netip.Addr{}, netip.Addr{}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Return: got error %v, want ErrTryAgain", err)
	}
	if err := a.Free(t.Context(), claims.KeyOf(net), "ep", netip.Addr{}, netip.Addr{}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Free: got error %v, want ErrTryAgain", err)
	}
	if _, err := a.Collect(t.Context(), claims.KeyOf(net)); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Collect: got error %v, want ErrTryAgain", err)
	}
	a.Published(claims.KeyOf(net), netip.Addr{}, netip.Addr{})
	a.Discard(net, netip.MustParseAddr("10.9.0.5"), netip.Addr{})
	if len(a.early) != 1 {
		t.Errorf("%d discards are kept, want 1", len(a.early))
	}
	a.Open(claims.New(store, claims.Config{Node: "a", NodeUID: "u"}))
	defer a.Close()
	if a.early != nil {
		t.Error("a kept discard was not handed over")
	}
}
