// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/patchbay-cni/patchbay/network"
)

// Claim covers one address per wanted family with the node's entry, all or
// none, in one write; when no family is wanted it puts the entry there. When
// ctx ends first, what was claimed is given back.
//
// Errors name the network and what to do: ErrExhausted, ErrTaken, ErrOutside,
// ErrNoSubnet, ErrDeleting, ErrSubnetInUse, ErrNotFound, ErrClosed, what is
// wrong with the network's spec (the Object's Invalid), and
// ErrTryAgain for all that time mends, with its cause: also when the subnet is not
// net's any more, since the address would get the former mask and routes.
func (a *Allocator) Claim(ctx context.Context, net *network.Network, v4, v6 Want) (a4, a6 netip.Addr, err error) {
	c := &claim{net: net, v4: v4, v6: v6, done: make(chan struct{})}
	d := a.desk(KeyOf(net))
	if a.ctx.Err() != nil {
		d.mu.Unlock()
		return a4, a6, fmt.Errorf("network %v: %w", net.Ref, ErrClosed)
	}
	d.claims = append(d.claims, c)
	d.poke()
	d.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if d.withdraw(c) {
			return a4, a6, fmt.Errorf("network %v: claim address: %w: %w", net.Ref, ErrTryAgain, context.Cause(ctx))
		}
	}
	if c.answer.err != nil {
		return a4, a6, fmt.Errorf("network %v: %w", net.Ref, c.answer.err)
	}
	for _, addr := range c.answer.addrs {
		if addr.Is4() {
			a4 = addr
		} else {
			a6 = addr
		}
	}
	return a4, a6, nil
}

// Discard gives back what Claim gave and nobody has used. It does not wait for
// the API server: what cannot be written now is retried.
func (a *Allocator) Discard(net *network.Network, a4, a6 netip.Addr) {
	d := a.desk(KeyOf(net))
	defer d.mu.Unlock()
	d.book.discard(both(a4, a6))
	d.dirty = true
	d.poke()
}
