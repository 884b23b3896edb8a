// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// pageIDs is the number of IDs in a page: one word of the bitmap, and about 2 KiB of text if all are in
// use.
const pageIDs = 64

// pool is a kind and a device with IDs of their own.
type pool struct{ kind, device string }

// pageKey identifies a page: the pageIDs IDs from number*pageIDs on.
type pageKey struct {
	pool

	number int
}

func keyOf(p network.TenantSlot) pageKey {
	return pageKey{pool{p.Kind, p.Device}, p.ID / pageIDs}
}

// String returns kind/device/number, as in the status.
func (k pageKey) String() string { return k.kind + "/" + k.device + "/" + strconv.Itoa(k.number) }

// parseKey parses the format of pageKey.String. Every page number except 0 is also a valid ID, so that the
// rules of slots apply.
func parseKey(s string) (pageKey, error) {
	at := strings.LastIndexByte(s, '/')
	number, err := strconv.Atoi(s[at+1:])
	if at < 0 || err != nil || number < 0 || strconv.Itoa(number) != s[at+1:] {
		return pageKey{}, fmt.Errorf("parse page %q: must be kind/device/number", text.Truncate(s, 100))
	}
	p, err := network.ParseTenantSlot(s[:at] + "/" + strconv.Itoa(max(number, 1)))
	if err != nil {
		return pageKey{}, fmt.Errorf("parse page: %w", err)
	}
	return pageKey{pool{p.Kind, p.Device}, number}, nil
}

// page has the owners of its IDs.
type page struct {
	used   uint64
	owners [pageIDs]Owner
	// text is the encoded page, empty after a change.
	text string
}

// parsePage parses "1000 ns/name token, 1003 …", with the IDs in ascending order.
func parsePage(key pageKey, text string) (*page, error) {
	p := &page{text: text}
	last := -1
	for entry := range strings.SplitSeq(text, ", ") {
		number, owner, _ := strings.Cut(entry, " ")
		slot, err := network.ParseTenantSlot(key.kind + "/" + key.device + "/" + number)
		if err != nil {
			return nil, err
		}
		if keyOf(slot) != key || slot.ID <= last {
			return nil, fmt.Errorf("ID %d must be in page %s, and in ascending order", slot.ID, key)
		}
		o, err := parseOwner(owner)
		if err != nil {
			return nil, fmt.Errorf("ID %d: %w", slot.ID, err)
		}
		last = slot.ID
		p.set(slot.ID, o)
	}
	p.text = text
	return p, nil
}

// encode returns the format that parsePage parses.
func (p *page) encode(number int) string {
	if p.text != "" {
		return p.text
	}
	var b strings.Builder
	for word := p.used; word != 0; word &= word - 1 {
		bit := bits.TrailingZeros64(word)
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(number*pageIDs+bit) + " " + p.owners[bit].encode())
	}
	p.text = b.String()
	return p.text
}

func (p *page) all(key pageKey) iter.Seq[Reservation] {
	return func(yield func(Reservation) bool) {
		for word := p.used; word != 0; word &= word - 1 {
			bit := bits.TrailingZeros64(word)
			slot := network.TenantSlot{Kind: key.kind, Device: key.device, ID: key.number*pageIDs + bit}
			if !yield(Reservation{Slot: slot, Owner: p.owners[bit]}) {
				return
			}
		}
	}
}

func (p *page) set(id int, o Owner) {
	p.used |= 1 << (id % pageIDs)
	p.owners[id%pageIDs] = o
	p.text = ""
}

func (p *page) clear(id int) {
	p.used &^= 1 << (id % pageIDs)
	p.owners[id%pageIDs] = Owner{}
	p.text = ""
}
