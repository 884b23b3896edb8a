// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt/errors"
)

// Format of bbolt's pages, in the machine's byte order: a header (ID, flags, number of elements,
// number of overflow pages), then the elements, then keys and values.
const (
	pageHeaderSize   = 16
	elementSize      = 16
	bucketHeaderSize = 16

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	// flagBucket marks a leaf element whose value is a bucket.
	flagBucket = 0x01
	// freelistOverflowCount as the number of elements means that the freelist's first element has it.
	freelistOverflowCount = 0xffff
)

// pageChecker verifies the pages of a bbolt file. bbolt itself follows any page number: a number out
// of bounds ends the process, and a wrong one within bounds loses keys.
type pageChecker struct {
	file []byte
	// size is the size of a page, and endID is the ID after the last page.
	size, endID uint64
	// used has the pages in use.
	used map[uint64]bool
}

// verify checks the pages of a meta page. Each must have the right type and be used once. It must
// not be in the freelist, because the next commit overwrites free pages.
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
		return p.pageError(id, "flags are %#x, must be those of a freelist", flags)
	}
	return p.checkFreelist(id, content)
}

// pageError returns an error about a page.
func (p *pageChecker) pageError(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: %s", errors.ErrInvalid, id, fmt.Sprintf(format, args...))
}

// readPage returns a page with its overflow pages, and marks them as used.
func (p *pageChecker) readPage(id uint64) ([]byte, error) {
	if id >= p.endID || id >= uint64(len(p.file))/p.size {
		return nil, p.pageError(id, "its ID is after the end of the file")
	}
	header := p.file[id*p.size:]
	last := id + uint64(binary.NativeEndian.Uint32(header[12:]))
	if own := binary.NativeEndian.Uint64(header); own != id {
		return nil, p.pageError(id, "its header has ID %d", own)
	}
	if last >= p.endID || (last+1)*p.size > uint64(len(p.file)) {
		return nil, p.pageError(id, "its overflow is after the end of the file")
	}
	for i := id; i <= last; i++ {
		if p.used[i] {
			return nil, p.pageError(i, "it is used twice")
		}
		p.used[i] = true
	}
	return p.file[id*p.size : (last+1)*p.size], nil
}

// checkTree checks the root page of a bucket and the pages below it.
func (p *pageChecker) checkTree(id uint64) error {
	content, err := p.readPage(id)
	if err != nil {
		return err
	}
	return p.checkElements(id, content)
}

// checkElements checks the elements of a branch or a leaf. An inline bucket is in the page of its
// parent.
func (p *pageChecker) checkElements(id uint64, content []byte) error {
	flags := binary.NativeEndian.Uint16(content[8:])
	count := int(binary.NativeEndian.Uint16(content[10:]))
	if flags != flagBranch && flags != flagLeaf {
		return p.pageError(id, "flags are %#x, must be those of a branch or a leaf", flags)
	}
	if pageHeaderSize+count*elementSize > len(content) || flags == flagBranch && count == 0 {
		return p.pageError(id, "it cannot have %d elements", count)
	}
	var last []byte
	for i := range count {
		element := content[pageHeaderSize+i*elementSize:]
		key, err := p.checkElement(id, flags, element)
		if err != nil {
			return err
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return p.pageError(id, "the key of element %d must be greater than the previous one", i)
		}
		last = key
	}
	return nil
}

// checkElement checks an element and the pages below it, and returns its key.
func (p *pageChecker) checkElement(id uint64, flags uint16, element []byte) ([]byte, error) {
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(element[4*i:])) }
	if flags == flagBranch {
		pos, size := word(0), word(1)
		if pos < elementSize || pos+size > uint64(len(element)) {
			return nil, p.pageError(id, "a key is outside of the page")
		}
		return element[pos : pos+size], p.checkTree(binary.NativeEndian.Uint64(element[8:]))
	}
	pos, size, value := word(1), word(2), word(3)
	if pos < elementSize || pos+size+value > uint64(len(element)) {
		return nil, p.pageError(id, "a value is outside of the page")
	}
	key, bucket := element[pos:pos+size], element[pos+size:pos+size+value]
	switch kind := word(0); {
	case kind == 0:
		return key, nil
	case kind != flagBucket || len(bucket) < bucketHeaderSize:
		return nil, p.pageError(id, "an element must be a value or a bucket")
	case binary.NativeEndian.Uint64(bucket) != 0:
		return key, p.checkTree(binary.NativeEndian.Uint64(bucket))
	case len(bucket) < bucketHeaderSize+pageHeaderSize:
		return nil, p.pageError(id, "an inline bucket is truncated")
	}
	return key, p.checkElements(id, bucket[bucketHeaderSize:])
}

// checkFreelist checks that the free pages exist and are not in use.
func (p *pageChecker) checkFreelist(id uint64, content []byte) error {
	list, count := content[pageHeaderSize:], uint64(binary.NativeEndian.Uint16(content[10:]))
	if count == freelistOverflowCount {
		count, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if count > uint64(len(list)/8) {
		return p.pageError(id, "it cannot have %d free pages", count)
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(list[8*i:])
		if free >= p.endID || p.used[free] {
			return p.pageError(free, "it is in the freelist, but it is in use or after the end of the file")
		}
		p.used[free] = true
	}
	return nil
}
