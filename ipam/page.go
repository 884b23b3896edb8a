// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Sizes of a page. 128 bytes become 172 of base64, so that a full /16 of 64 pages needs about 11 KiB,
// and a single address less than 200 bytes.
const (
	pageShift = 10
	pageBits  = 1 << pageShift
	pageWords = pageBits / 64
	pageBytes = pageBits / 8
	textBytes = (pageBytes + 2) / 3 * 4
)

// page is 1,024 addresses.
type page struct {
	// used are the addresses in use, bit 0 of word 0 first.
	used [pageWords]uint64
	// reserved are the addresses that AllocateNext never returns.
	reserved [pageWords]uint64
	// text is used as it was decoded, empty once it has changed.
	text string
	// inUse counts the bits of used, unavailable those of used or reserved.
	inUse, unavailable int
}

func (p *page) has(bit uint) bool { return p.used[bit/64]>>(bit%64)&1 != 0 }

// set sets a bit that must be clear.
func (p *page) set(bit uint) {
	p.used[bit/64] |= 1 << (bit % 64)
	p.text = ""
	p.inUse++
	if p.reserved[bit/64]>>(bit%64)&1 == 0 {
		p.unavailable++
	}
}

// clear clears a bit that must be set.
func (p *page) clear(bit uint) {
	p.used[bit/64] &^= 1 << (bit % 64)
	p.text = ""
	p.inUse--
	if p.reserved[bit/64]>>(bit%64)&1 == 0 {
		p.unavailable--
	}
}

// reserve reserves a bit and reports whether it was not reserved before.
func (p *page) reserve(bit uint) bool {
	mask := uint64(1) << (bit % 64)
	if p.reserved[bit/64]&mask != 0 {
		return false
	}
	p.reserved[bit/64] |= mask
	if p.used[bit/64]&mask == 0 {
		p.unavailable++
	}
	return true
}

// reserveAll reserves the bits that another page has reserved.
func (p *page) reserveAll(other *page) {
	p.unavailable = 0
	for i := range p.reserved {
		p.reserved[i] |= other.reserved[i]
		p.unavailable += bits.OnesCount64(p.used[i] | p.reserved[i])
	}
}

// firstFree returns the first bit from on that is neither used nor reserved, or pageBits.
func (p *page) firstFree(from uint) uint {
	word := from / 64
	open := ^(p.used[word] | p.reserved[word]) &^ lowMask64(int(from%64))
	for open == 0 {
		if word++; word == pageWords {
			return pageBits
		}
		open = ^(p.used[word] | p.reserved[word])
	}
	return word*64 + uint(bits.TrailingZeros64(open))
}

// countDynamic counts the bits in [from, to] that are used and not reserved.
func (p *page) countDynamic(from, to uint) int {
	n := 0
	for w := from / 64; w <= to/64; w++ {
		word := p.used[w] &^ p.reserved[w]
		if w == from/64 {
			word &^= lowMask64(int(from % 64))
		}
		if w == to/64 {
			word &= lowMask64(int(to%64) + 1)
		}
		n += bits.OnesCount64(word)
	}
	return n
}

// encode returns used in standard base64, bit 0 of byte 0 first.
func (p *page) encode() string {
	if p.text == "" {
		var raw [pageBytes]byte
		for i, w := range p.used {
			binary.LittleEndian.PutUint64(raw[8*i:], w)
		}
		p.text = base64.StdEncoding.EncodeToString(raw[:])
	}
	return p.text
}

// decode fills used from text; the other fields are those of a fresh page.
func (p *page) decode(text string) error {
	if len(text) != textBytes {
		return fmt.Errorf("decode page: %d bytes of base64, want %d", len(text), textBytes)
	}
	var (
		in  [textBytes]byte // on the stack: a full /16 has 64 of them
		raw [pageBytes + 2]byte
	)
	copy(in[:], text)
	// Strict rejects unused last bits that are not zero, so that a page has only one encoding.
	n, err := base64.StdEncoding.Strict().Decode(raw[:], in[:])
	if err != nil {
		return fmt.Errorf("decode page: %w", err)
	}
	if n != pageBytes {
		return fmt.Errorf("decode page: %d bytes, want %d", n, pageBytes)
	}
	for i := range p.used {
		p.used[i] = binary.LittleEndian.Uint64(raw[8*i:])
		p.inUse += bits.OnesCount64(p.used[i])
	}
	p.unavailable = p.inUse
	p.text = text
	return nil
}
