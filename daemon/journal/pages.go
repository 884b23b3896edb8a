// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt/errors"
)

// What bbolt's pages are made of, in the machine's byte order: a head (ID, flags,
// count of elements, overflow pages), then the elements, then keys and values.
const (
	pageHead    = 16
	elementSize = 16
	bucketHead  = 16

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	// flagBucket marks a leaf element whose value is a bucket.
	flagBucket = 0x01
	// manyFree as a count says that the count is a freelist's first element.
	manyFree = 0xffff
)

// pages walks a bbolt file without trusting it. bbolt itself follows what a page says
// to wherever that is: out of bounds it ends the process, within them it loses keys.
type pages struct {
	file []byte
	// size is that of a page, end the ID after the last page.
	size, end uint64
	// seen has the pages in use.
	seen map[uint64]bool
}

// verify checks the pages that belong to a meta page: each is what it should be, is
// used once, and is not in the list of free ones, which the next commit writes over.
func (p *pages) verify(meta []byte) error {
	p.end = binary.NativeEndian.Uint64(meta[metaEndID:])
	p.seen = map[uint64]bool{0: true, 1: true}
	if err := p.tree(binary.NativeEndian.Uint64(meta[metaRoot:])); err != nil {
		return err
	}
	id := binary.NativeEndian.Uint64(meta[metaFreelist:])
	content, err := p.take(id)
	if err != nil {
		return err
	}
	if flags := binary.NativeEndian.Uint16(content[8:]); flags != flagFreelist {
		return p.bad(id, "flags %#x where a freelist is", flags)
	}
	return p.freelist(id, content)
}

func (p *pages) bad(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: %s", errors.ErrInvalid, id, fmt.Sprintf(format, args...))
}

// take returns a page with its overflow and marks it as used.
func (p *pages) take(id uint64) ([]byte, error) {
	if id >= p.end || id >= uint64(len(p.file))/p.size {
		return nil, p.bad(id, "it is behind the end")
	}
	head := p.file[id*p.size:]
	last := id + uint64(binary.NativeEndian.Uint32(head[12:]))
	if own := binary.NativeEndian.Uint64(head); own != id {
		return nil, p.bad(id, "its ID is %d", own)
	}
	if last >= p.end || (last+1)*p.size > uint64(len(p.file)) {
		return nil, p.bad(id, "it ends behind the end")
	}
	for i := id; i <= last; i++ {
		if p.seen[i] {
			return nil, p.bad(i, "it is used twice")
		}
		p.seen[i] = true
	}
	return p.file[id*p.size : (last+1)*p.size], nil
}

// tree checks a bucket's page and those below it.
func (p *pages) tree(id uint64) error {
	content, err := p.take(id)
	if err != nil {
		return err
	}
	return p.elements(id, content)
}

// elements checks the elements of a branch or a leaf, which may be in the page of
// another bucket.
func (p *pages) elements(id uint64, content []byte) error {
	flags := binary.NativeEndian.Uint16(content[8:])
	count := int(binary.NativeEndian.Uint16(content[10:]))
	if flags != flagBranch && flags != flagLeaf {
		return p.bad(id, "flags %#x where a branch or a leaf is", flags)
	}
	if pageHead+count*elementSize > len(content) || flags == flagBranch && count == 0 {
		return p.bad(id, "%d elements", count)
	}
	var last []byte
	for i := range count {
		element := content[pageHead+i*elementSize:]
		key, err := p.element(id, flags, element)
		if err != nil {
			return err
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return p.bad(id, "element %d has a key that is not behind the one before", i)
		}
		last = key
	}
	return nil
}

// element checks an element and what it leads to, and returns its key.
func (p *pages) element(id uint64, flags uint16, element []byte) ([]byte, error) {
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(element[4*i:])) }
	if flags == flagBranch {
		pos, size := word(0), word(1)
		if pos < elementSize || pos+size > uint64(len(element)) {
			return nil, p.bad(id, "a key is outside of it")
		}
		return element[pos : pos+size], p.tree(binary.NativeEndian.Uint64(element[8:]))
	}
	pos, size, value := word(1), word(2), word(3)
	if pos < elementSize || pos+size+value > uint64(len(element)) {
		return nil, p.bad(id, "a value is outside of it")
	}
	key, bucket := element[pos:pos+size], element[pos+size:pos+size+value]
	switch kind := word(0); {
	case kind == 0:
		return key, nil
	case kind != flagBucket || len(bucket) < bucketHead:
		return nil, p.bad(id, "an element is neither a value nor a bucket")
	case binary.NativeEndian.Uint64(bucket) != 0:
		return key, p.tree(binary.NativeEndian.Uint64(bucket))
	case len(bucket) < bucketHead+pageHead:
		return nil, p.bad(id, "a bucket within it is cut short")
	}
	return key, p.elements(id, bucket[bucketHead:])
}

// freelist checks that free pages exist and are not in use.
func (p *pages) freelist(id uint64, content []byte) error {
	list, count := content[pageHead:], uint64(binary.NativeEndian.Uint16(content[10:]))
	if count == manyFree {
		count, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if count > uint64(len(list)/8) {
		return p.bad(id, "%d free pages", count)
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(list[8*i:])
		if free >= p.end || p.seen[free] {
			return p.bad(free, "it is in use, or behind the end, and in the list of free ones")
		}
		p.seen[free] = true
	}
	return nil
}
