// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// newNetwork returns a network with a subnet.
func newNetwork(t *testing.T) *network.Network {
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

// Before Open, methods with an error return ErrTryAgain, and reports without an answer are queued.
func TestDeferredAllocatorBeforeOpen(t *testing.T) {
	t.Parallel()
	store := ipamtest.NewFake()
	net := newNetwork(t)
	a := NewDeferredAllocator()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := a.Claim(ctx, net, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Claim: got error %v, want ErrTryAgain", err)
	}
	if err := a.ReturnToEntry(t.Context(), network.KeyOf(net), "ep", netip.Addr{}, netip.Addr{}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Return: got error %v, want ErrTryAgain", err)
	}
	if err := a.Free(t.Context(), network.KeyOf(net), "ep", netip.Addr{}, netip.Addr{}); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Free: got error %v, want ErrTryAgain", err)
	}
	if _, err := a.CollectGarbage(t.Context(), network.KeyOf(net)); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("Collect: got error %v, want ErrTryAgain", err)
	}
	a.MarkPublished(network.KeyOf(net), "ep", netip.Addr{}, netip.Addr{})
	a.Discard(net, netip.MustParseAddr("10.9.0.5"), netip.Addr{})
	if len(a.queued) != 2 {
		t.Errorf("got %d queued calls, want 2", len(a.queued))
	}
	a.Open(allocator.New(store, allocator.Config{Node: "a", NodeUID: "u"}))
	defer a.Close()
	if a.queued != nil {
		t.Error("got queued calls after Open, want none")
	}
}

// An ADD that comes while the daemon restarts waits for Open.
func TestClaimWaitsForOpen(t *testing.T) {
	t.Parallel()
	store := ipamtest.NewFake()
	net := newNetwork(t)
	net = store.Create(net)
	a := NewDeferredAllocator()
	claimed := make(chan error, 1)
	go func() {
		_, _, err := a.Claim(t.Context(), net, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{})
		claimed <- err
	}()
	select {
	case err := <-claimed:
		t.Fatalf("Claim returned %v before Open, want it to wait", err)
	case <-time.After(20 * time.Millisecond):
	}
	a.Open(allocator.New(store, allocator.Config{Node: "a", NodeUID: "u"}))
	defer a.Close()
	if err := <-claimed; err != nil {
		t.Errorf("Claim after Open: %v", err)
	}
}

// An error of the allocator keeps its cause, and matches the error of package attach that means
// the same.
func TestAllocatorError(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		err       error
		is, isNot error
	}{
		"TryAgain":  {"A retry may help.", fmt.Errorf("x: %w", status.ErrTryAgain), attach.ErrTryAgain, attach.ErrNotFound},
		"Closed":    {"The next daemon answers.", allocator.ErrClosed, attach.ErrTryAgain, nil},
		"NotFound":  {"The network is gone.", status.ErrNotFound, attach.ErrNotFound, attach.ErrTryAgain},
		"Taken":     {"The Pod of a static address can be named.", &allocator.TakenError{}, allocator.ErrTaken, attach.ErrTryAgain},
		"Exhausted": {"A retry does not help while the pool is full.", allocator.ErrExhausted, allocator.ErrExhausted, attach.ErrTryAgain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := allocatorError(tc.err)
			if !errors.Is(got, tc.err) {
				t.Errorf("%s: %v does not wrap its cause %v", tc.reason, got, tc.err)
			}
			if tc.is != nil && !errors.Is(got, tc.is) {
				t.Errorf("%s: %v is not %v", tc.reason, got, tc.is)
			}
			if tc.isNot != nil && errors.Is(got, tc.isNot) {
				t.Errorf("%s: %v is %v", tc.reason, got, tc.isNot)
			}
		})
	}
	if err := allocatorError(nil); err != nil {
		t.Errorf("allocatorError(nil): got %v, want nil", err)
	}
}

// The journal records how far each interface came. The allocator resumes from that phase.
func TestUsesTellHowFarEachInterfaceCame(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		state  attach.State
		uid    string
		static bool
		want   allocator.Phase
	}{
		"Attaching":   {reason: "The addresses are claimed before the record is written.", state: attach.Attaching, want: allocator.Claimed},
		"Attached":    {reason: "Its DanmEp may not exist yet.", state: attach.Attached, want: allocator.Claimed},
		"Static":      {reason: "A static address must not go to another Pod.", state: attach.Released, static: true, want: allocator.Releasing},
		"Published":   {reason: "The journal has the UID of its DanmEp.", state: attach.Attached, uid: "u", want: allocator.Published},
		"Released":    {reason: "The journal does not record how far the release came.", state: attach.Released, want: allocator.Releasing},
		"Unpublished": {reason: "A DanmEp of a released record does not mean that its address is in use.", state: attach.Released, uid: "u", want: allocator.Releasing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}
			rec := &attach.Record{State: tc.state, Interfaces: []attach.Interface{{
				V4: netip.MustParsePrefix("10.9.0.5/24"), StaticV4: tc.static,
				Network:      network.Network{Ref: ref, UID: "net-uid", Type: "macvlan"},
				EndpointName: "sandbox-eth0", EndpointUID: tc.uid,
			}}}
			want := []allocator.Use{{
				Key:   network.Key{Ref: ref, UID: "net-uid"},
				Owner: rec.Interfaces[0].EndpointName,
				V4:    netip.MustParseAddr("10.9.0.5"), Phase: tc.want, Static4: tc.static,
			}}
			if diff := cmp.Diff(want, RecordedUses([]*attach.Record{rec}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A Pod on the node configuration has no address of Patchbay.
func TestNoUseOnNodeConfiguration(t *testing.T) {
	t.Parallel()
	rec := &attach.Record{State: attach.Attached, Interfaces: []attach.Interface{{Name: "eth0", Network: *network.NodeConfiguration()}}}
	if got := RecordedUses([]*attach.Record{rec}); len(got) > 0 {
		t.Errorf("got uses %v, want none", got)
	}
}
