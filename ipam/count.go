// SPDX-License-Identifier: Apache-2.0

package ipam

import "math"

// Allocated counts the addresses in use, wherever they lie.
func (p *Pool) Allocated() int64 {
	var n int64
	for _, pg := range p.index.pages {
		n += int64(pg.inUse)
	}
	return n
}

// InUse counts the addresses in use in the dynamic range, without reserved ones
// that were claimed by name: what Capacity is to be compared with.
func (p *Pool) InUse() int64 {
	var n int64
	for i, pg := range p.index.pages {
		first := p.index.keys[i].first()
		from, to := first, first.add(u128{lo: pageBits - 1})
		if from.less(p.start) {
			from = p.start
		}
		if p.end.less(to) {
			to = p.end
		}
		if !to.less(from) {
			n += int64(pg.countTaken(bitOf(from), bitOf(to)))
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
	return span.saturate() + 1 - p.barred
}
