// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"math/bits"
	"strconv"
)

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

// parseDecimal reads what String writes, and nothing else: no sign, no leading
// zero, no white space.
func parseDecimal(s string) (u128, error) {
	if s == "" || len(s) > maxDecimal || s[0] == '0' && s != "0" {
		return u128{}, fmt.Errorf("parse page index %.50q: want a decimal number without leading zeros", s)
	}
	var n u128
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return u128{}, fmt.Errorf("parse page index %q: %q is no digit", s, c)
		}
		over, lo := bits.Mul64(n.lo, 10)
		spill, hi := bits.Mul64(n.hi, 10)
		hi, carry := bits.Add64(hi, over, 0)
		lo, low := bits.Add64(lo, uint64(c-'0'), 0)
		hi, high := bits.Add64(hi, 0, low)
		if spill+carry+high != 0 {
			return u128{}, fmt.Errorf("parse page index %q: over 128 bits", s)
		}
		n = u128{hi, lo}
	}
	return n, nil
}
