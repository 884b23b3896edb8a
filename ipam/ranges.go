// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"iter"
	"math"
	"net/netip"
	"slices"
)

// Range is a run of addresses of one family, both ends included.
type Range struct{ From, To netip.Addr }

// Ranges is a set of addresses of one family: ranges in order, none empty, with
// at least one address between any two. The zero value is the empty set.
type Ranges struct{ list []Range }

// search returns the position of the first range that ends at a or after it.
func (r *Ranges) search(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(r.list, a, func(x Range, a netip.Addr) int {
		return x.To.Compare(a)
	})
	return i
}

// Contains reports whether an address is in the set.
func (r *Ranges) Contains(a netip.Addr) bool {
	i := r.search(a)
	return i < len(r.list) && r.list[i].From.Compare(a) <= 0
}

// Add puts an address into the set and reports whether it was not there.
func (r *Ranges) Add(a netip.Addr) bool {
	if r.Contains(a) {
		return false
	}
	i := r.search(a)
	after := i < len(r.list) && r.list[i].From == a.Next()
	before := i > 0 && r.list[i-1].To == a.Prev()
	switch {
	case before && after:
		r.list[i-1].To = r.list[i].To
		r.list = slices.Delete(r.list, i, i+1)
	case before:
		r.list[i-1].To = a
	case after:
		r.list[i].From = a
	default:
		r.list = slices.Insert(r.list, i, Range{a, a})
	}
	return true
}

// Remove takes an address out of the set and reports whether it was there.
func (r *Ranges) Remove(a netip.Addr) bool {
	if !r.Contains(a) {
		return false
	}
	i := r.search(a)
	x := r.list[i]
	switch {
	case x.From == x.To:
		r.list = slices.Delete(r.list, i, i+1)
	case x.From == a:
		r.list[i].From = a.Next()
	case x.To == a:
		r.list[i].To = a.Prev()
	default:
		r.list[i].To = a.Prev()
		r.list = slices.Insert(r.list, i+1, Range{a.Next(), x.To})
	}
	return true
}

// Clone returns a set that can be changed apart from this one.
func (r *Ranges) Clone() Ranges { return Ranges{slices.Clone(r.list)} }

// Empty reports whether the set has no address.
func (r *Ranges) Empty() bool { return len(r.list) == 0 }

// Len counts the addresses; it saturates at 2^63-1.
func (r *Ranges) Len() int64 {
	var n int64
	for _, x := range r.list {
		span := fromAddr(x.To).sub(fromAddr(x.From)).saturate()
		if span >= math.MaxInt64-n {
			return math.MaxInt64
		}
		n += span + 1
	}
	return n
}

// All returns the addresses in order. The set must not change meanwhile.
func (r *Ranges) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, x := range r.list {
			for a := x.From; ; a = a.Next() {
				if !yield(a) {
					return
				}
				if a == x.To {
					break
				}
			}
		}
	}
}
