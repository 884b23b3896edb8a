// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// u128 is an unsigned number of 128 bits: an address, an offset in a subnet or
// the index of a page. It is comparable, so that it can be the key of a map.
type u128 struct{ hi, lo uint64 }

func (a u128) add(b u128) u128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return u128{hi, lo}
}

func (a u128) sub(b u128) u128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return u128{hi, lo}
}

func (a u128) inc() u128 { return a.add(u128{lo: 1}) }

func (a u128) less(b u128) bool {
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

func (a u128) cmp(b u128) int {
	switch {
	case a == b:
		return 0
	case a.less(b):
		return -1
	}
	return 1
}

// firstOffset returns the first offset of the page with that number.
func (a u128) firstOffset() u128 {
	return u128{a.hi<<pageShift | a.lo>>(64-pageShift), a.lo << pageShift}
}

// pageNumber returns the number of the page that an offset is in.
func (a u128) pageNumber() u128 {
	return u128{a.hi >> pageShift, a.lo>>pageShift | a.hi<<(64-pageShift)}
}

// saturate returns the number as an int64, at most 2^63-1.
func (a u128) saturate() int64 {
	if a.hi != 0 || a.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(a.lo)
}

// addr is the inverse of fromAddr.
func (a u128) addr(is4 bool) netip.Addr {
	if is4 {
		return netip.AddrFrom4([4]byte{byte(a.lo >> 24), byte(a.lo >> 16), byte(a.lo >> 8), byte(a.lo)})
	}
	var b [16]byte
	for i := range 8 {
		b[i] = byte(a.hi >> (56 - 8*i))
		b[8+i] = byte(a.lo >> (56 - 8*i))
	}
	return netip.AddrFrom16(b)
}

// fromAddr returns the number of a valid address; that of an IPv4 address has
// 32 bits.
func fromAddr(a netip.Addr) u128 {
	if a.Is4() {
		b := a.As4()
		return u128{lo: uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3])}
	}
	b := a.As16()
	return u128{be64(b[:8]), be64(b[8:])}
}

func be64(b []byte) uint64 {
	var n uint64
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n
}

// lowMask returns the number with the n lowest bits set, n ≤ 128.
func lowMask(n int) u128 {
	if n <= 64 {
		return u128{lo: lowMask64(n)}
	}
	return u128{hi: lowMask64(n - 64), lo: math.MaxUint64}
}

// lowMask64 relies on Go's rule that a shift by 64 gives 0.
func lowMask64(n int) uint64 { return 1<<uint(n) - 1 }

// maxDecimal is the length of 2^128-1 in decimal.
const maxDecimal = 39

// String returns the number in decimal.
func (a u128) String() string {
	if a.hi == 0 {
		return strconv.FormatUint(a.lo, 10)
	}
	// Two divisions by 10^19, the largest power of ten in 64 bits.
	const e19 = 10_000_000_000_000_000_000
	qhi, r := a.hi/e19, a.hi%e19
	qlo, r := bits.Div64(r, a.lo, e19)
	return u128{qhi, qlo}.String() + fmt.Sprintf("%019d", r)
}

// parseDecimal is the inverse of String. It rejects signs, leading zeros and white space.
func parseDecimal(s string) (u128, error) {
	if s == "" || len(s) > maxDecimal || s[0] == '0' && s != "0" {
		return u128{}, fmt.Errorf("parse page index %q: must be a decimal number without leading zeros", text.Truncate(s, 50))
	}
	var n u128
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return u128{}, fmt.Errorf("parse page index %q: %q must be a digit", s, c)
		}
		over, lo := bits.Mul64(n.lo, 10)
		spill, hi := bits.Mul64(n.hi, 10)
		hi, carry := bits.Add64(hi, over, 0)
		lo, low := bits.Add64(lo, uint64(c-'0'), 0)
		hi, high := bits.Add64(hi, 0, low)
		if spill+carry+high != 0 {
			return u128{}, fmt.Errorf("parse page index %q: must fit into 128 bits", s)
		}
		n = u128{hi, lo}
	}
	return n, nil
}
