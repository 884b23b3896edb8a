// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
)

// Config describes a pool.
type Config struct {
	// CIDR is the subnet; host bits are ignored.
	CIDR netip.Prefix
	// Start and End are the first and last address that Next hands out, both
	// in CIDR; when invalid, the subnet's first and last.
	Start, End netip.Addr
	// Reserved are never handed out by Next, such as gateways. Those outside
	// of CIDR are ignored. They can be claimed by name.
	Reserved []netip.Addr
}

// Pool is the set of the addresses in use in one subnet.
type Pool struct {
	cidr netip.Prefix
	is4  bool
	base u128 // the subnet's first address
	last u128 // offset of the subnet's last address

	start, end u128 // offsets of the dynamic range
	cursor     u128 // offset where the next search starts
	barred     int64
	index      index
}

// New returns an empty pool.
func New(cfg Config) (*Pool, error) {
	if !cfg.CIDR.IsValid() || cfg.CIDR.Addr().Is4In6() {
		return nil, fmt.Errorf("make pool: subnet %v is not valid", cfg.CIDR)
	}
	cidr := cfg.CIDR.Masked()
	addr := cidr.Addr()
	p := &Pool{
		cidr: cidr, is4: addr.Is4(), base: fromAddr(addr),
		last: lowMask(addr.BitLen() - cidr.Bits()),
	}
	p.end = p.last
	for _, bound := range []struct {
		name string
		addr netip.Addr
		off  *u128
	}{{"start", cfg.Start, &p.start}, {"end", cfg.End, &p.end}} {
		if !bound.addr.IsValid() {
			continue
		}
		off, ok := p.offset(bound.addr)
		if !ok {
			return nil, fmt.Errorf("make pool: %s %v: %w %v", bound.name, bound.addr, ErrOutside, cidr)
		}
		*bound.off = off
	}
	if p.end.less(p.start) {
		return nil, fmt.Errorf("make pool: end %v is before start %v", cfg.End, cfg.Start)
	}
	p.cursor = p.start
	p.barEnds()
	for _, a := range cfg.Reserved {
		if off, ok := p.offset(a); ok {
			p.bar(off)
		}
	}
	return p, nil
}

// CIDR returns the subnet, masked.
func (p *Pool) CIDR() netip.Prefix { return p.cidr }

// barEnds reserves the network and the broadcast address (RFC 950; for IPv6 the
// subnet-router anycast address of RFC 4291, 2.6.1, and for symmetry the last).
// Subnets of one or two addresses have neither (RFC 3021, RFC 6164).
func (p *Pool) barEnds() {
	if p.hasEnds() {
		p.bar(u128{})
		p.bar(p.last)
	}
}

func (p *Pool) hasEnds() bool { return u128{lo: 1}.less(p.last) }

// bar keeps an offset from being handed out dynamically.
func (p *Pool) bar(off u128) {
	p.index.change(off.page(), func(pg *page) {
		if pg.bar(bitOf(off)) && p.dynamic(off) {
			p.barred++
		}
	})
}

// dynamic reports whether an offset is in the dynamic range.
func (p *Pool) dynamic(off u128) bool { return !off.less(p.start) && !p.end.less(off) }

// offset returns where an address is in the subnet.
func (p *Pool) offset(a netip.Addr) (u128, bool) {
	if !p.cidr.Contains(a) {
		return u128{}, false
	}
	return fromAddr(a).sub(p.base), true
}

func (p *Pool) addr(off u128) netip.Addr { return p.base.add(off).addr(p.is4) }

// bitOf returns where an offset is in its page.
func bitOf(off u128) uint { return uint(off.lo % pageBits) }

// All returns the addresses in use, in order. The pool must not change
// meanwhile.
func (p *Pool) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for i, pg := range p.index.pages {
			first := p.index.keys[i].first()
			for w, word := range pg.used {
				for ; word != 0; word &= word - 1 {
					bit := uint64(w*64 + bits.TrailingZeros64(word))
					if !yield(p.addr(first.add(u128{lo: bit}))) {
						return
					}
				}
			}
		}
	}
}

// Gives reports whether Next can hand the address out once it is free: it is in
// the dynamic range and not reserved.
func (p *Pool) Gives(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok || !p.dynamic(off) {
		return false
	}
	pg := p.index.get(off.page())
	return pg == nil || pg.off[bitOf(off)/64]>>(bitOf(off)%64)&1 == 0
}

// Cursor is the address where the next search starts.
func (p *Pool) Cursor() netip.Addr { return p.addr(p.cursor) }

// Seek has the next search start at an address, if that is in the dynamic range.
func (p *Pool) Seek(a netip.Addr) {
	if off, ok := p.offset(a); ok && p.dynamic(off) {
		p.cursor = off
	}
}
