// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// ReturnToEntry puts the addresses of an attachment back into the node's entry. After that, the
// DanmEp may be deleted. A second call does nothing, nor does a call for addresses of another
// node or for a network that is gone.
//
// owner is the name of the attachment's DanmEp. A release may be repeated, even from an outdated
// journal, long after another Pod has got its address. Therefore, until Forget, only the owner
// of an address releases it.
func (a *Allocator) ReturnToEntry(ctx context.Context, key network.Key, owner string, a4, a6 netip.Addr) error {
	if err := a.awaitDecision(ctx, "return", key); err != nil {
		return err
	}
	return a.await(ctx, "return", key, func(n *networkAllocator) *condition {
		addrs := n.local.owned(owner, status.Valid(a4, a6))
		n.local.returnToEntry(addrs)
		return &condition{holds: func(l *localState) bool { return !l.any(addrs, returning) }}
	})
}

// Free takes an attachment's addresses out of use. It is called when their DanmEp is gone or was
// never created. A dynamic address stays in the node's entry for a cooldown, and then enters the
// warm pool or is freed. A static address is freed before Free returns. A second call does
// nothing, nor does a call for addresses that the node's entry does not cover. For an attachment
// without addresses, it records that the attachment no longer needs the entry.
func (a *Allocator) Free(ctx context.Context, key network.Key, owner string, a4, a6 netip.Addr) error {
	if err := a.awaitDecision(ctx, "free", key); err != nil {
		return err
	}
	return a.await(ctx, "free", key, func(n *networkAllocator) *condition {
		addrs := status.Valid(a4, a6)
		if len(addrs) == 0 {
			n.local.endAddressless(owner)
		}
		addrs = n.local.owned(owner, addrs)
		n.local.free(addrs, n.cooldownEnd())
		n.changed()
		return &condition{holds: func(l *localState) bool { return !l.any(addrs, freeing) }}
	})
}

// awaitDecision waits until contention between former owners of addresses is resolved.
func (a *Allocator) awaitDecision(ctx context.Context, verb string, key network.Key) error {
	return a.await(ctx, verb, key, func(n *networkAllocator) *condition {
		if len(n.local.contenders) == 0 {
			return nil
		}
		return &condition{fresh: true, holds: func(l *localState) bool { return len(l.contenders) == 0 }}
	})
}

// Forget drops the record of an attachment's release. The attachment was removed from the
// journal, so its release is not repeated.
func (a *Allocator) Forget(key network.Key, owner string, a4, a6 netip.Addr) {
	a.with(key, func(n *networkAllocator) {
		for _, addr := range []netip.Addr{a4, a6, {}} {
			delete(n.local.released, release{owner, addr})
		}
	})
}

// Discard releases addresses from Claim that no Pod has used. It does not wait for the API
// server; a failed write is retried.
func (a *Allocator) Discard(net *network.Network, a4, a6 netip.Addr) {
	a.with(network.KeyOf(net), func(n *networkAllocator) {
		n.local.discard(status.Valid(a4, a6), n.cooldownEnd())
		n.changed()
	})
}

// ReleaseWarmPool frees the addresses of all warm pools, cooldowns and quarantines, for an
// orderly shutdown. It waits for the writes until ctx ends. Addresses that were not freed by
// then stay in the node's entries, for its next incarnation.
func (a *Allocator) ReleaseWarmPool(ctx context.Context) error {
	a.closing.Store(true)
	var networks []*networkAllocator
	for _, n := range *a.networks.Load() {
		networks = append(networks, n)
	}
	return atOnce(networks, func(n *networkAllocator) error {
		r, err := n.releaseWarmPool()
		if r != nil {
			err = a.wait(ctx, n.queue, r)
		}
		if err != nil {
			return fmt.Errorf("free addresses of network %v: %w", n.key.Ref, err)
		}
		return nil
	})
}
