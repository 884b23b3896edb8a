// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// slash24 is a network with a subnet.
func slash24(t *testing.T) *network.Network {
	t.Helper()
	net, err := network.FromObject(&v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"},
		Spec:       v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{CIDR: "10.9.0.0/24"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return net
}

// Before the allocator is there, everything that needs it can be tried again,
// and what needs no answer is kept.
func TestAddressesBeforeOpen(t *testing.T) {
	t.Parallel()
	store := ipamtest.NewFake()
	net := slash24(t)
	a := NewDeferredAllocator()
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := a.Claim(soon, net, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{}); !errors.Is(err, attach.ErrTryAgain) {
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
	a.Published(claims.KeyOf(net), "ep", netip.Addr{}, netip.Addr{})
	a.Discard(net, netip.MustParseAddr("10.9.0.5"), netip.Addr{})
	if len(a.queued) != 2 {
		t.Errorf("%d words are kept, want both", len(a.queued))
	}
	a.Open(claims.New(store, claims.Config{Node: "a", NodeUID: "u"}))
	defer a.Close()
	if a.queued != nil {
		t.Error("what was kept was not handed over")
	}
}

// The ADDs that come while a daemon restarts wait for it.
func TestClaimWaitsForOpen(t *testing.T) {
	t.Parallel()
	store := ipamtest.NewFake()
	net := slash24(t)
	net = store.Create(net)
	a := NewDeferredAllocator()
	claimed := make(chan error, 1)
	go func() {
		_, _, err := a.Claim(t.Context(), net, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{})
		claimed <- err
	}()
	select {
	case err := <-claimed:
		t.Fatalf("Claim did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	a.Open(claims.New(store, claims.Config{Node: "a", NodeUID: "u"}))
	defer a.Close()
	if err := <-claimed; err != nil {
		t.Errorf("Claim after Open: %v", err)
	}
}
