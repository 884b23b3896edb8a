// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// addressRange has the addresses from from to to, both included, of one family.
type addressRange struct{ from, to netip.Addr }

// Ranges is a set of addresses of one family: ranges in order, none empty, with
// at least one address between any two. The zero value is the empty set.
type Ranges struct{ list []addressRange }

// search returns the position of the first range that ends at a or after it.
func (r *Ranges) search(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(r.list, a, func(x addressRange, a netip.Addr) int {
		return x.to.Compare(a)
	})
	return i
}

// Contains reports whether an address is in the set.
func (r *Ranges) Contains(a netip.Addr) bool {
	i := r.search(a)
	return i < len(r.list) && r.list[i].from.Compare(a) <= 0
}

// Add puts an address into the set and reports whether it was not there.
func (r *Ranges) Add(a netip.Addr) bool {
	if r.Contains(a) {
		return false
	}
	i := r.search(a)
	after := i < len(r.list) && r.list[i].from == a.Next()
	before := i > 0 && r.list[i-1].to == a.Prev()
	switch {
	case before && after:
		r.list[i-1].to = r.list[i].to
		r.list = slices.Delete(r.list, i, i+1)
	case before:
		r.list[i-1].to = a
	case after:
		r.list[i].from = a
	default:
		r.list = slices.Insert(r.list, i, addressRange{a, a})
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
	case x.from == x.to:
		r.list = slices.Delete(r.list, i, i+1)
	case x.from == a:
		r.list[i].from = a.Next()
	case x.to == a:
		r.list[i].to = a.Prev()
	default:
		r.list[i].to = a.Prev()
		r.list = slices.Insert(r.list, i+1, addressRange{a.Next(), x.to})
	}
	return true
}

// Equal reports whether two sets have the same addresses.
func (r *Ranges) Equal(o *Ranges) bool { return slices.Equal(r.list, o.list) }

// Clone returns a deep copy.
func (r *Ranges) Clone() Ranges { return Ranges{slices.Clone(r.list)} }

// Empty reports whether the set has no address.
func (r *Ranges) Empty() bool { return len(r.list) == 0 }

// Len counts the addresses; it saturates at 2^63-1.
func (r *Ranges) Len() int64 {
	var n int64
	for _, x := range r.list {
		span := fromAddr(x.to).sub(fromAddr(x.from)).saturate()
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
			for a := x.from; ; a = a.Next() {
				if !yield(a) {
					return
				}
				if a == x.to {
					break
				}
			}
		}
	}
}

// String returns the text that ParseRanges reads, such as
// "10.0.0.5-10.0.0.9,10.0.0.12"; empty for the empty set.
func (r *Ranges) String() string {
	var b []byte
	for i, x := range r.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = x.from.AppendTo(b)
		if x.from != x.to {
			b = append(b, '-')
			b = x.to.AppendTo(b)
		}
	}
	return string(b)
}

// maxRanges limits the ranges of one text: 4,096 of IPv6 are at most 320 KiB, far more than the entry
// of a node needs.
const maxRanges = 4096

// ParseRanges parses ranges of addresses of one family. A set has only one valid text: ranges in order
// and not adjacent, addresses in their canonical form (RFC 5952 for IPv6) without zone, no white
// space. The error of any other text names the range.
func ParseRanges(s string) (Ranges, error) {
	var r Ranges
	if s == "" {
		return r, nil
	}
	n := strings.Count(s, ",") + 1
	if n > maxRanges {
		return r, fmt.Errorf("parse ranges: %d ranges, want at most %d", n, maxRanges)
	}
	r.list = make([]addressRange, 0, n)
	for part := range strings.SplitSeq(s, ",") {
		x, err := parseRange(part)
		if err != nil {
			return Ranges{}, fmt.Errorf("parse range %q: %w", text.Truncate(part, 100), err)
		}
		if n := len(r.list); n > 0 {
			before := r.list[n-1].to
			if before.Is4() != x.from.Is4() {
				return Ranges{}, fmt.Errorf("parse range %q: not of the family of %v", part, before)
			}
			if before.Compare(x.from) >= 0 || before.Next() == x.from {
				return Ranges{}, fmt.Errorf("parse range %q: not after %v with a gap", part, before)
			}
		}
		r.list = append(r.list, x)
	}
	return r, nil
}

func parseRange(part string) (addressRange, error) {
	first, last, isRange := strings.Cut(part, "-")
	from, err := parseAddr(first)
	if err != nil || !isRange {
		return addressRange{from, from}, err
	}
	to, err := parseAddr(last)
	if err != nil {
		return addressRange{}, err
	}
	if from.Is4() != to.Is4() {
		return addressRange{}, fmt.Errorf("%v and %v are of two families", from, to)
	}
	if from.Compare(to) >= 0 {
		return addressRange{}, fmt.Errorf("%v is not before %v", from, to)
	}
	return addressRange{from, to}, nil
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, err
	}
	var canonical [48]byte // on the stack: each plan of a claim reads the entries of all nodes
	if a.Zone() != "" || a.Is4In6() || string(a.AppendTo(canonical[:0])) != text {
		return netip.Addr{}, fmt.Errorf("address %q is not in canonical form", text)
	}
	return a, nil
}
