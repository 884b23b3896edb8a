// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// strict refuses base64 whose unused last bits are not zero, so that one page
// has one text only.
var strict = base64.StdEncoding.Strict()

// encode returns used in standard base64, bit 0 of byte 0 first.
func (p *page) encode() string {
	if p.text == "" {
		var raw [pageBytes]byte
		for i, w := range p.used {
			binary.LittleEndian.PutUint64(raw[8*i:], w)
		}
		p.text = strict.EncodeToString(raw[:])
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
	n, err := strict.Decode(raw[:], in[:])
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
	p.busy = p.inUse
	p.text = text
	return nil
}
