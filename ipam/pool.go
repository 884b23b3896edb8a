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

// Errors of a Pool. Check them with errors.Is.
var (
	// errOutsideSubnet means that an address is not in the subnet.
	errOutsideSubnet = errors.New("address is outside of the subnet")
	// errUnusable means that an address is the subnet's network or broadcast
	// address.
	errUnusable = errors.New("address is the subnet's network or broadcast address")
	// ErrAllocated means that an address is in use.
	ErrAllocated = errors.New("address is in use")
	// errSubnetMismatch means that a State was written for another subnet.
	errSubnetMismatch = errors.New("bitmap is of another subnet")
)

// Config describes a pool.
type Config struct {
	// CIDR is the subnet; host bits are ignored.
	CIDR netip.Prefix
	// Start and End are the first and last address of the dynamic range, from which
	// AllocateNext takes addresses. Both are in CIDR; if invalid, they are the first and last
	// address of the subnet.
	Start, End netip.Addr
	// Reserved are addresses that AllocateNext never returns, such as gateways. Allocate can
	// allocate them. Those outside of CIDR are ignored.
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
		return nil, fmt.Errorf("create pool: subnet %v must be a valid IPv4 or IPv6 prefix", cfg.CIDR)
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
			return nil, fmt.Errorf("create pool: %s %v: %w %v", bound.name, bound.addr, errOutsideSubnet, cidr)
		}
		*bound.off = off
	}
	if p.end.less(p.start) {
		return nil, fmt.Errorf("create pool: end %v is before start %v", cfg.End, cfg.Start)
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

// reserve reserves an offset, so that AllocateNext never returns it.
func (p *Pool) reserve(off u128) {
	p.index.change(off.pageNumber(), func(pg *page) {
		if pg.reserve(bitOf(off)) && p.inDynamicRange(off) {
			p.reservedCount++
		}
	})
}

// CIDR returns the subnet, masked.
func (p *Pool) CIDR() netip.Prefix { return p.cidr }

// AllocateNext allocates the next free address of the dynamic range after the last one that it
// returned, so that a freed address is not reused as long as possible. It reports false if no
// address is free.
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

// ContinueAfter makes AllocateNext continue where that of former would, if that address is in the
// dynamic range. The pool of a subnet that has grown begins so.
func (p *Pool) ContinueAfter(former *Pool) {
	if off, ok := p.offset(former.addr(former.cursor)); ok && p.inDynamicRange(off) {
		p.cursor = off
	}
}

// AllocateN appends up to n addresses from AllocateNext to dst.
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

// search returns the first offset in [from, to] that is neither used nor reserved.
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

// Allocate allocates this address. It may be anywhere in the subnet, reserved or not, but not the
// network or the broadcast address.
func (p *Pool) Allocate(a netip.Addr) error {
	off, ok := p.offset(a)
	switch {
	case !ok:
		return fmt.Errorf("allocate %v: %w %v", a, errOutsideSubnet, p.cidr)
	case p.reservesEnds() && (off == u128{} || off == p.last):
		return fmt.Errorf("allocate %v of %v: %w", a, p.cidr, errUnusable)
	case p.Has(a):
		return fmt.Errorf("allocate %v of %v: %w", a, p.cidr, ErrAllocated)
	}
	p.index.change(off.pageNumber(), func(pg *page) { pg.set(bitOf(off)) })
	return nil
}

// MarkAllocated marks any address of the subnet as in use, to rebuild a bitmap, and reports whether
// it was not in use before. Addresses outside of the subnet are ignored.
func (p *Pool) MarkAllocated(a netip.Addr) bool {
	off, ok := p.offset(a)
	if !ok || p.Has(a) {
		return false
	}
	p.index.change(off.pageNumber(), func(pg *page) { pg.set(bitOf(off)) })
	return true
}

// Release frees an address and reports whether it was in use. It does not move the cursor, so that
// AllocateNext returns all other free addresses first.
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

// Allocated counts the addresses in use in the whole subnet.
func (p *Pool) Allocated() int64 {
	var n int64
	for _, pg := range p.index.pages {
		n += int64(pg.inUse)
	}
	return n
}

// AllocatedDynamic counts the addresses in use in the dynamic range, without reserved ones. It is
// comparable with Capacity.
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

// Capacity counts the addresses that AllocateNext can return from an empty pool. It saturates at
// 2^63-1.
func (p *Pool) Capacity() int64 {
	span := p.end.sub(p.start)
	if span.hi != 0 || span.lo >= math.MaxInt64 {
		return math.MaxInt64
	}
	return span.saturate() + 1 - p.reservedCount
}

// ReservedDynamic counts the addresses of the dynamic range that AllocateNext never returns: those of
// Config.Reserved, and the network and the broadcast address.
func (p *Pool) ReservedDynamic() int64 { return p.reservedCount }

// IsAllocatable reports whether AllocateNext can return the address once it is free: it is in the
// dynamic range and not reserved.
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
