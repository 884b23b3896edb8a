// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// maxRanges bounds the ranges of one text: 4,096 of IPv6 are at most 320 KiB,
// far more than a node ever holds.
const maxRanges = 4096

// String returns the text that ParseRanges reads, such as
// "10.0.0.5-10.0.0.9,10.0.0.12"; empty for the empty set.
func (r *Ranges) String() string {
	var b []byte
	for i, x := range r.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = x.From.AppendTo(b)
		if x.From != x.To {
			b = append(b, '-')
			b = x.To.AppendTo(b)
		}
	}
	return string(b)
}

// ParseRanges reads ranges of addresses of one family. A set has one text only:
// ranges in order and not adjacent, addresses in their canonical form (RFC 5952
// for IPv6) without zone, no white space. Each other text is an error that
// names the range.
func ParseRanges(text string) (Ranges, error) {
	var r Ranges
	if text == "" {
		return r, nil
	}
	n := strings.Count(text, ",") + 1
	if n > maxRanges {
		return r, fmt.Errorf("parse ranges: %d ranges, want at most %d", n, maxRanges)
	}
	r.list = make([]Range, 0, n)
	for part := range strings.SplitSeq(text, ",") {
		x, err := parseRange(part)
		if err != nil {
			return Ranges{}, fmt.Errorf("parse range %.100q: %w", part, err)
		}
		if n := len(r.list); n > 0 {
			before := r.list[n-1].To
			if before.Is4() != x.From.Is4() {
				return Ranges{}, fmt.Errorf("parse range %q: not of the family of %v", part, before)
			}
			if before.Compare(x.From) >= 0 || before.Next() == x.From {
				return Ranges{}, fmt.Errorf("parse range %q: not after %v with a gap", part, before)
			}
		}
		r.list = append(r.list, x)
	}
	return r, nil
}

func parseRange(part string) (Range, error) {
	first, last, isRange := strings.Cut(part, "-")
	from, err := parseAddr(first)
	if err != nil || !isRange {
		return Range{from, from}, err
	}
	to, err := parseAddr(last)
	if err != nil {
		return Range{}, err
	}
	if from.Is4() != to.Is4() {
		return Range{}, fmt.Errorf("%v and %v are of two families", from, to)
	}
	if from.Compare(to) >= 0 {
		return Range{}, fmt.Errorf("%v is not before %v", from, to)
	}
	return Range{from, to}, nil
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
