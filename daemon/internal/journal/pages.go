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
	pageHeaderSize   = 16
	elementSize      = 16
	bucketHeaderSize = 16

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	// flagBucket marks a leaf element whose value is a bucket.
	flagBucket = 0x01
	// freelistOverflowCount as a count says that the count is a freelist's first element.
	freelistOverflowCount = 0xffff
)

// pageChecker walks a bbolt file without trusting it. bbolt itself follows what a page says
// to wherever that is: out of bounds it ends the process, within them it loses keys.
type pageChecker struct {
	file []byte
	// size is that of a page, end the ID after the last page.
	size, endID uint64
	// used has the pages in use.
	used map[uint64]bool
}

// verify checks the pages that belong to a meta page: each is what it should be, is
// used once, and is not in the list of free ones, which the next commit writes over.
func (p *pageChecker) verify(meta []byte) error {
	p.endID = binary.NativeEndian.Uint64(meta[metaEndID:])
	p.used = map[uint64]bool{0: true, 1: true}
	if err := p.checkTree(binary.NativeEndian.Uint64(meta[metaRoot:])); err != nil {
		return err
	}
	id := binary.NativeEndian.Uint64(meta[metaFreelist:])
	content, err := p.readPage(id)
	if err != nil {
		return err
	}
	if flags := binary.NativeEndian.Uint16(content[8:]); flags != flagFreelist {
		return p.pageError(id, "flags %#x where a freelist is", flags)
	}
	return p.checkFreelist(id, content)
}

func (p *pageChecker) pageError(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: %s", errors.ErrInvalid, id, fmt.Sprintf(format, args...))
}

// readPage returns a page with its overflow and marks it as used.
func (p *pageChecker) readPage(id uint64) ([]byte, error) {
	if id >= p.endID || id >= uint64(len(p.file))/p.size {
		return nil, p.pageError(id, "it is behind the end")
	}
	head := p.file[id*p.size:]
	last := id + uint64(binary.NativeEndian.Uint32(head[12:]))
	if own := binary.NativeEndian.Uint64(head); own != id {
		return nil, p.pageError(id, "its ID is %d", own)
	}
	if last >= p.endID || (last+1)*p.size > uint64(len(p.file)) {
		return nil, p.pageError(id, "it ends behind the end")
	}
	for i := id; i <= last; i++ {
		if p.used[i] {
			return nil, p.pageError(i, "it is used twice")
		}
		p.used[i] = true
	}
	return p.file[id*p.size : (last+1)*p.size], nil
}

// checkTree checks a bucket's page and those below it.
func (p *pageChecker) checkTree(id uint64) error {
	content, err := p.readPage(id)
	if err != nil {
		return err
	}
	return p.checkElements(id, content)
}

// checkElements checks the elements of a branch or a leaf, which may be in the page of
// another bucket.
func (p *pageChecker) checkElements(id uint64, content []byte) error {
	flags := binary.NativeEndian.Uint16(content[8:])
	count := int(binary.NativeEndian.Uint16(content[10:]))
	if flags != flagBranch && flags != flagLeaf {
		return p.pageError(id, "flags %#x where a branch or a leaf is", flags)
	}
	if pageHeaderSize+count*elementSize > len(content) || flags == flagBranch && count == 0 {
		return p.pageError(id, "%d elements", count)
	}
	var last []byte
	for i := range count {
		element := content[pageHeaderSize+i*elementSize:]
		key, err := p.checkElement(id, flags, element)
		if err != nil {
			return err
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return p.pageError(id, "element %d has a key that is not behind the one before", i)
		}
		last = key
	}
	return nil
}

// checkElement checks an element and what it leads to, and returns its key.
func (p *pageChecker) checkElement(id uint64, flags uint16, element []byte) ([]byte, error) {
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(element[4*i:])) }
	if flags == flagBranch {
		pos, size := word(0), word(1)
		if pos < elementSize || pos+size > uint64(len(element)) {
			return nil, p.pageError(id, "a key is outside of it")
		}
		return element[pos : pos+size], p.checkTree(binary.NativeEndian.Uint64(element[8:]))
	}
	pos, size, value := word(1), word(2), word(3)
	if pos < elementSize || pos+size+value > uint64(len(element)) {
		return nil, p.pageError(id, "a value is outside of it")
	}
	key, bucket := element[pos:pos+size], element[pos+size:pos+size+value]
	switch kind := word(0); {
	case kind == 0:
		return key, nil
	case kind != flagBucket || len(bucket) < bucketHeaderSize:
		return nil, p.pageError(id, "an element is neither a value nor a bucket")
	case binary.NativeEndian.Uint64(bucket) != 0:
		return key, p.checkTree(binary.NativeEndian.Uint64(bucket))
	case len(bucket) < bucketHeaderSize+pageHeaderSize:
		return nil, p.pageError(id, "a bucket within it is cut short")
	}
	return key, p.checkElements(id, bucket[bucketHeaderSize:])
}

// checkFreelist checks that free pages exist and are not in use.
func (p *pageChecker) checkFreelist(id uint64, content []byte) error {
	list, count := content[pageHeaderSize:], uint64(binary.NativeEndian.Uint16(content[10:]))
	if count == freelistOverflowCount {
		count, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if count > uint64(len(list)/8) {
		return p.pageError(id, "%d free pages", count)
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(list[8*i:])
		if free >= p.endID || p.used[free] {
			return p.pageError(free, "it is in use, or behind the end, and in the list of free ones")
		}
		p.used[free] = true
	}
	return nil
}
