// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"math/bits"
	"slices"
	"sort"
)

// index finds pages by number, and the next page with a free address without a scan of the full
// pages. A missing page is empty.
type index struct {
	// keys are the pages' numbers in order; pages has the pages at the same positions.
	keys  []u128
	pages []*page
	// full has a bit for each position whose page has no free address.
	full []uint64
}

// find returns the position of a page, or where it would be.
func (x *index) find(key u128) (int, bool) {
	// In a dense pool the position is the number.
	if key.hi == 0 && key.lo < uint64(len(x.keys)) && x.keys[key.lo] == key {
		return int(key.lo), true
	}
	return slices.BinarySearchFunc(x.keys, key, u128.cmp)
}

// get returns a page, or nil if it is missing.
func (x *index) get(key u128) *page {
	if i, ok := x.find(key); ok {
		return x.pages[i]
	}
	return nil
}

// change applies f to a page. It creates a missing page.
func (x *index) change(key u128, f func(*page)) {
	i, ok := x.find(key)
	if !ok {
		x.keys = slices.Insert(x.keys, i, key)
		x.pages = slices.Insert(x.pages, i, &page{})
		x.updateFullFrom(i + 1)
	}
	f(x.pages[i])
	x.updateFull(i)
}

// updateFull updates full for one page.
func (x *index) updateFull(i int) {
	mask := uint64(1) << (i % 64)
	x.full[i/64] &^= mask
	if x.pages[i].unavailable == pageBits {
		x.full[i/64] |= mask
	}
}

// updateFullFrom updates full for all pages from a position on.
func (x *index) updateFullFrom(from int) {
	for len(x.full)*64 < len(x.pages) {
		x.full = append(x.full, 0)
	}
	for i := from; i < len(x.pages); i++ {
		x.updateFull(i)
	}
}

// openAfter returns the number of the first page after position i that is
// missing or not full.
func (x *index) openAfter(i int) u128 {
	next := x.notFull(i + 1)
	last := min(next, len(x.keys)-1)
	gap := i + 1 + sort.Search(last-i, func(n int) bool {
		return x.keys[i+1+n].sub(x.keys[i]) != u128{lo: uint64(n + 1)}
	})
	if gap <= last || next == len(x.keys) {
		return x.keys[gap-1].inc()
	}
	return x.keys[next]
}

// notFull returns the first position from i on whose page is not full, or the
// number of pages.
func (x *index) notFull(i int) int {
	for w := i / 64; w < len(x.full); w++ {
		open := ^x.full[w]
		if w == i/64 {
			open &^= lowMask64(i % 64)
		}
		if open != 0 {
			return min(w*64+bits.TrailingZeros64(open), len(x.pages))
		}
	}
	return len(x.pages)
}
