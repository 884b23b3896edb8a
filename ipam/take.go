// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
)

// Next takes the next free address of the dynamic range after the one handed
// out last, so that a freed address rests as long as possible. It reports false
// when none is left.
func (p *Pool) Next() (netip.Addr, bool) {
	off, ok := p.search(p.cursor, p.end)
	if !ok {
		if off, ok = p.search(p.start, p.cursor); !ok {
			return netip.Addr{}, false
		}
	}
	p.index.change(off.page(), func(pg *page) { pg.set(bitOf(off)) })
	p.cursor = p.start
	if off.less(p.end) {
		p.cursor = off.inc()
	}
	return p.addr(off), true
}

// NextN appends up to n addresses, as Next gives them, to dst.
func (p *Pool) NextN(dst []netip.Addr, n int) []netip.Addr {
	for range n {
		a, ok := p.Next()
		if !ok {
			break
		}
		dst = append(dst, a)
	}
	return dst
}

// search returns the first offset in [from, to] that can be handed out.
func (p *Pool) search(from, to u128) (u128, bool) {
	i, ok := p.index.find(from.page())
	if !ok {
		return from, !to.less(from)
	}
	off := u128{from.hi, from.lo &^ (pageBits - 1)}
	bit := p.index.pages[i].free(bitOf(from))
	if bit == pageBits {
		key := p.index.openAfter(i)
		if to.page().less(key) {
			return u128{}, false
		}
		off, bit = key.first(), 0
		if pg := p.index.get(key); pg != nil {
			bit = pg.free(0)
		}
	}
	off.lo |= uint64(bit)
	return off, !to.less(off)
}

// Claim takes one address by name. It may be anywhere in the subnet, reserved
// or not, but for the network and the broadcast address.
func (p *Pool) Claim(a netip.Addr) error {
	off, ok := p.offset(a)
	switch {
	case !ok:
		return fmt.Errorf("claim %v: %w %v", a, ErrOutside, p.cidr)
	case p.hasEnds() && (off == u128{} || off == p.last):
		return fmt.Errorf("claim %v of %v: %w", a, p.cidr, ErrUnusable)
	case p.Has(a):
		return fmt.Errorf("claim %v of %v: %w", a, p.cidr, ErrTaken)
	}
	p.index.change(off.page(), func(pg *page) { pg.set(bitOf(off)) })
	return nil
}

// Mark sets an address as in use whatever it is, for a bitmap that is rebuilt
// from what is in use, and reports whether it was not. Addresses outside of the
// subnet are ignored.
func (p *Pool) Mark(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok || p.Has(a) {
		return false
	}
	p.index.change(off.page(), func(pg *page) { pg.set(bitOf(off)) })
	return true
}

// Release frees an address and reports whether it was in use. The cursor stays:
// the address is handed out again only after all others.
func (p *Pool) Release(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok || !p.Has(a) {
		return false
	}
	p.index.change(off.page(), func(pg *page) { pg.clear(bitOf(off)) })
	return true
}

// Has reports whether an address is in use.
func (p *Pool) Has(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok {
		return false
	}
	pg := p.index.get(off.page())
	return pg != nil && pg.has(bitOf(off))
}
