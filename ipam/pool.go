// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"net/netip"
)

// Errors that a Pool answers with; errors.Is holds through wrapping.
var (
	// errOutsideSubnet says that an address is not in the subnet.
	errOutsideSubnet = errors.New("address is outside of the subnet")
	// errUnusable says that an address is the subnet's network or broadcast
	// address.
	errUnusable = errors.New("address is the subnet's network or broadcast address")
	// ErrAllocated says that an address is in use.
	ErrAllocated = errors.New("address is in use")
	// errSubnetMismatch says that a State was written for another subnet.
	errSubnetMismatch = errors.New("bitmap is of another subnet")
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

	start, end    u128 // offsets of the dynamic range
	cursor        u128 // offset where the next search starts
	reservedCount int64
	index         index
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
			return nil, fmt.Errorf("make pool: %s %v: %w %v", bound.name, bound.addr, errOutsideSubnet, cidr)
		}
		*bound.off = off
	}
	if p.end.less(p.start) {
		return nil, fmt.Errorf("make pool: end %v is before start %v", cfg.End, cfg.Start)
	}
	p.cursor = p.start
	p.reserveEnds()
	for _, a := range cfg.Reserved {
		if off, ok := p.offset(a); ok {
			p.reserve(off)
		}
	}
	return p, nil
}

// reserveEnds reserves the network and the broadcast address (RFC 950; for IPv6 the
// subnet-router anycast address of RFC 4291, 2.6.1, and for symmetry the last).
// Subnets of one or two addresses have neither (RFC 3021, RFC 6164).
func (p *Pool) reserveEnds() {
	if p.reservesEnds() {
		p.reserve(u128{})
		p.reserve(p.last)
	}
}

func (p *Pool) reservesEnds() bool { return u128{lo: 1}.less(p.last) }

// reserve keeps an offset from being handed out dynamically.
func (p *Pool) reserve(off u128) {
	p.index.change(off.pageNumber(), func(pg *page) {
		if pg.reserve(bitOf(off)) && p.inDynamicRange(off) {
			p.reservedCount++
		}
	})
}

// CIDR returns the subnet, masked.
func (p *Pool) CIDR() netip.Prefix { return p.cidr }

// AllocateNext takes the next free address of the dynamic range after the one handed
// out last, so that a freed address rests as long as possible. It reports false
// when none is left.
func (p *Pool) AllocateNext() (netip.Addr, bool) {
	off, ok := p.search(p.cursor, p.end)
	if !ok {
		if off, ok = p.search(p.start, p.cursor); !ok {
			return netip.Addr{}, false
		}
	}
	p.index.change(off.pageNumber(), func(pg *page) { pg.set(bitOf(off)) })
	p.cursor = p.start
	if off.less(p.end) {
		p.cursor = off.inc()
	}
	return p.addr(off), true
}

// AllocateN appends up to n addresses, as Next gives them, to dst.
func (p *Pool) AllocateN(dst []netip.Addr, n int) []netip.Addr {
	for range n {
		a, ok := p.AllocateNext()
		if !ok {
			break
		}
		dst = append(dst, a)
	}
	return dst
}

// search returns the first offset in [from, to] that can be handed out.
func (p *Pool) search(from, to u128) (u128, bool) {
	i, ok := p.index.find(from.pageNumber())
	if !ok {
		return from, !to.less(from)
	}
	off := u128{from.hi, from.lo &^ (pageBits - 1)}
	bit := p.index.pages[i].firstFree(bitOf(from))
	if bit == pageBits {
		key := p.index.openAfter(i)
		if to.pageNumber().less(key) {
			return u128{}, false
		}
		off, bit = key.firstOffset(), 0
		if pg := p.index.get(key); pg != nil {
			bit = pg.firstFree(0)
		}
	}
	off.lo |= uint64(bit)
	return off, !to.less(off)
}

// Allocate takes one address by name. It may be anywhere in the subnet, reserved
// or not, but for the network and the broadcast address.
func (p *Pool) Allocate(a netip.Addr) error {
	off, ok := p.offset(a)
	switch {
	case !ok:
		return fmt.Errorf("claim %v: %w %v", a, errOutsideSubnet, p.cidr)
	case p.reservesEnds() && (off == u128{} || off == p.last):
		return fmt.Errorf("claim %v of %v: %w", a, p.cidr, errUnusable)
	case p.Has(a):
		return fmt.Errorf("claim %v of %v: %w", a, p.cidr, ErrAllocated)
	}
	p.index.change(off.pageNumber(), func(pg *page) { pg.set(bitOf(off)) })
	return nil
}

// MarkAllocated sets an address as in use whatever it is, for a bitmap that is rebuilt
// from what is in use, and reports whether it was not. Addresses outside of the
// subnet are ignored.
func (p *Pool) MarkAllocated(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok || p.Has(a) {
		return false
	}
	p.index.change(off.pageNumber(), func(pg *page) { pg.set(bitOf(off)) })
	return true
}

// Release frees an address and reports whether it was in use. The cursor stays:
// the address is handed out again only after all others.
func (p *Pool) Release(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok || !p.Has(a) {
		return false
	}
	p.index.change(off.pageNumber(), func(pg *page) { pg.clear(bitOf(off)) })
	return true
}

// Has reports whether an address is in use.
func (p *Pool) Has(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok {
		return false
	}
	pg := p.index.get(off.pageNumber())
	return pg != nil && pg.has(bitOf(off))
}

// All returns the addresses in use, in order. The pool must not change
// meanwhile.
func (p *Pool) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for i, pg := range p.index.pages {
			first := p.index.keys[i].firstOffset()
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

// Allocated counts the addresses in use, wherever they lie.
func (p *Pool) Allocated() int64 {
	var n int64
	for _, pg := range p.index.pages {
		n += int64(pg.inUse)
	}
	return n
}

// AllocatedDynamic counts the addresses in use in the dynamic range, without reserved ones
// that were claimed by name: what Capacity is to be compared with.
func (p *Pool) AllocatedDynamic() int64 {
	var n int64
	for i, pg := range p.index.pages {
		first := p.index.keys[i].firstOffset()
		from, to := first, first.add(u128{lo: pageBits - 1})
		if from.less(p.start) {
			from = p.start
		}
		if p.end.less(to) {
			to = p.end
		}
		if !to.less(from) {
			n += int64(pg.countDynamic(bitOf(from), bitOf(to)))
		}
	}
	return n
}

// Capacity counts the addresses that Next hands out of an empty pool. It
// saturates at 2^63-1.
func (p *Pool) Capacity() int64 {
	span := p.end.sub(p.start)
	if span.hi != 0 || span.lo >= math.MaxInt64 {
		return math.MaxInt64
	}
	return span.saturate() + 1 - p.reservedCount
}

// IsAllocatable reports whether Next can hand the address out once it is free: it is in
// the dynamic range and not reserved.
func (p *Pool) IsAllocatable(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok || !p.inDynamicRange(off) {
		return false
	}
	pg := p.index.get(off.pageNumber())
	return pg == nil || pg.reserved[bitOf(off)/64]>>(bitOf(off)%64)&1 == 0
}

// inDynamicRange reports whether an offset is in the dynamic range.
func (p *Pool) inDynamicRange(off u128) bool { return !off.less(p.start) && !p.end.less(off) }

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
