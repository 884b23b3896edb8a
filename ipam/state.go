// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// State is the form of a pool in a network's status.
type State struct {
	// CIDR is the subnet that the bits were written for.
	CIDR string
	// Cursor is the address where the next search starts; empty means the
	// first of the dynamic range.
	Cursor string
	// Pages maps decimal page numbers to 1,024 bits in standard base64: bit i,
	// least significant first, is the address base + number*1024 + i. A page
	// without a set bit is omitted.
	Pages map[string]string
}

// Encode is the inverse of Decode. Equal pools have equal states.
func (p *Pool) Encode() State {
	s := State{CIDR: p.cidr.String(), Cursor: p.addr(p.cursor).String()}
	for i, pg := range p.index.pages {
		if pg.inUse == 0 {
			continue
		}
		if s.Pages == nil {
			s.Pages = make(map[string]string, len(p.index.pages)-i)
		}
		s.Pages[p.index.keys[i].String()] = pg.encode()
	}
	return s
}

// Decode returns the pool that a state describes. It rejects states that Encode does not write: a
// subnet that is not masked or is not cfg.CIDR, invalid base64, pages of another length, and pages
// and bits outside of the subnet.
func Decode(cfg Config, s State) (*Pool, error) {
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if s.CIDR != p.cidr.String() {
		return nil, fmt.Errorf("decode bitmap: %w: want %v, got %q", errSubnetMismatch, p.cidr, text.Truncate(s.CIDR, 50))
	}
	if err := p.decodeCursor(s.Cursor); err != nil {
		return nil, err
	}
	if err := p.decodePages(s.Pages); err != nil {
		return nil, fmt.Errorf("decode bitmap of %v: %w", p.cidr, err)
	}
	return p, nil
}

// decodeCursor ignores a cursor outside of the dynamic range, because the range may have changed since
// the state was written.
func (p *Pool) decodeCursor(text string) error {
	if text == "" {
		return nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("decode cursor of %v: %w", p.cidr, err)
	}
	off, ok := p.offset(a)
	if !ok {
		return fmt.Errorf("decode cursor of %v: %v: %w", p.cidr, a, errOutsideSubnet)
	}
	if p.inDynamicRange(off) {
		p.cursor = off
	}
	return nil
}

// decodePages fills the index in order, so that each page is appended. It keeps the bits reserved that
// New has reserved.
func (p *Pool) decodePages(texts map[string]string) error {
	reserved := p.index
	x := index{keys: make([]u128, 0, len(texts)+len(reserved.keys))}
	for name := range texts {
		key, err := parseDecimal(name)
		if err != nil {
			return err
		}
		x.keys = append(x.keys, key)
	}
	for _, key := range reserved.keys {
		if _, ok := texts[key.String()]; !ok {
			x.keys = append(x.keys, key)
		}
	}
	slices.SortFunc(x.keys, u128.cmp)
	pages := make([]page, len(x.keys))
	for i, key := range x.keys {
		if text, ok := texts[key.String()]; ok {
			if err := p.decodePage(key, &pages[i], text); err != nil {
				return err
			}
		}
		if old := reserved.get(key); old != nil {
			pages[i].reserveAll(old)
		}
		x.pages = append(x.pages, &pages[i])
	}
	x.updateFullFrom(0)
	p.index = x
	return nil
}

func (p *Pool) decodePage(key u128, pg *page, text string) error {
	if p.last.pageNumber().less(key) {
		return fmt.Errorf("page %v is outside of the subnet", key)
	}
	if err := pg.decode(text); err != nil {
		return fmt.Errorf("page %v: %w", key, err)
	}
	// Only a subnet of less than a page can have bits outside of it.
	if p.last.less(u128{lo: pageBits - 1}) && pg.countDynamic(uint(p.last.lo)+1, pageBits-1) > 0 {
		return fmt.Errorf("page %v has bits outside of the subnet", key)
	}
	return nil
}
