// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Claim covers one address per wanted family with the node's entry, all or
// none; when no family is wanted it puts the entry there. What the node holds is
// handed out at once, without a request; else it is one write. When ctx ends
// first, what was claimed is given back.
//
// Errors name the network and what to do: ErrExhausted, ErrTaken, ErrOutside,
// ErrNoSubnet, ErrDeleting, ErrSubnetInUse, ErrNotFound, ErrClosed, what is
// wrong with the network's spec (the Object's Invalid), and
// ErrTryAgain for all that time mends, with its cause: also when the subnet is not
// net's any more, since the address would get the former mask and routes.
func (a *Allocator) Claim(ctx context.Context, net *network.Network, v4, v6 Want) (a4, a6 netip.Addr, err error) {
	key := KeyOf(net)
	if d := a.find(key); d != nil {
		if a4, a6, ok := d.fromShelf(net, v4, v6); ok {
			a.stats.fromHold.Add(1)
			return a4, a6, nil
		}
	}
	begin := time.Now()
	a4, a6, err = a.commit(ctx, &claim{net: net, v4: v4, v6: v6, since: begin, done: make(chan struct{})})
	a.stats.count(err)
	a.cfg.Observe(time.Since(begin), err)
	return a4, a6, err
}

// commit has a claim served by the network's next write.
func (a *Allocator) commit(ctx context.Context, c *claim) (a4, a6 netip.Addr, err error) {
	net := c.net
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
	case <-a.ctx.Done():
		if d.withdraw(c) {
			return a4, a6, fmt.Errorf("network %v: %w", net.Ref, ErrClosed)
		}
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
	d.book.discard(both(a4, a6), d.restUntil())
	d.settleLater()
}

// restUntil is when an address has rested that is released now; zero without a rest.
func (d *desk) restUntil() time.Time {
	if d.a.cfg.Cool == 0 {
		return time.Time{}
	}
	return time.Now().Add(d.a.cfg.Cool)
}

// settleLater sees to what has changed in the book: at once if a write is owed.
func (d *desk) settleLater() {
	if d.book.owing() {
		d.dirty = true
		d.poke()
	}
	if d.book.slack() {
		d.later(d.a.cfg.Idle)
	}
	d.schedule(time.Now())
}
