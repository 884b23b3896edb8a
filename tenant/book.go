// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/patchbay-cni/patchbay/network"
)

// Book is what is reserved of a TenantConfig. It is not safe for concurrent use.
type Book struct {
	pages  map[pageKey]*page
	tokens map[string]network.Place
	used   map[pool]int
}

// NewBook returns a book without reservations.
func NewBook() *Book {
	return &Book{pages: map[pageKey]*page{}, tokens: map[string]network.Place{}, used: map[pool]int{}}
}

// ParseBook reads status.reservations of a TenantConfig. It refuses what Encode
// does not write, naming the page.
func ParseBook(texts map[string]string) (*Book, error) {
	b := NewBook()
	for name, text := range texts {
		key, err := parseKey(name)
		if err != nil {
			return nil, err
		}
		p, err := parsePage(key, text)
		if err != nil {
			return nil, fmt.Errorf("parse page %s: %w", name, err)
		}
		b.pages[key] = p
		b.used[key.pool] += bits.OnesCount64(p.used)
		for r := range p.all(key) {
			if at, twice := b.tokens[r.Owner.Token]; twice {
				return nil, fmt.Errorf("parse page %s: %s has %s and %s", name, r.Owner, at, r.Place)
			}
			b.tokens[r.Owner.Token] = r.Place
		}
	}
	return b, nil
}

// Encode returns what ParseBook reads. Equal books give equal texts.
func (b *Book) Encode() map[string]string {
	texts := make(map[string]string, len(b.pages))
	for key, p := range b.pages {
		texts[key.String()] = p.encode(key.number)
	}
	return texts
}

// Add reserves a place, or returns ErrTaken with the name of who has it. The same
// token at the same place is no error. It refuses what ParseBook would not read back:
// one such entry would make a TenantConfig unreadable for everybody.
func (b *Book) Add(r Reservation) error {
	if err := r.readable(); err != nil {
		return fmt.Errorf("reserve %.100s for %.100q: %w", r.Place, r.Owner, err)
	}
	if o, taken := b.At(r.Place); taken {
		if o.Token == r.Owner.Token {
			return nil
		}
		return fmt.Errorf("reserve %s for %s: %w by %s", r.Place, r.Owner, ErrTaken, o)
	}
	if at, has := b.tokens[r.Owner.Token]; has {
		return fmt.Errorf("reserve %s for %s: it has %s already", r.Place, r.Owner, at)
	}
	key := keyOf(r.Place)
	p := b.pages[key]
	if p == nil {
		p = &page{}
		b.pages[key] = p
	}
	p.set(r.Place.ID, r.Owner)
	b.tokens[r.Owner.Token] = r.Place
	b.used[key.pool]++
	return nil
}

// Remove frees the place of a token and reports whether it had one.
func (b *Book) Remove(token string) bool {
	place, ok := b.tokens[token]
	if !ok {
		return false
	}
	key := keyOf(place)
	b.pages[key].clear(place.ID)
	if b.pages[key].used == 0 {
		delete(b.pages, key)
	}
	delete(b.tokens, token)
	b.used[key.pool]--
	return true
}

// At returns who has a place.
func (b *Book) At(p network.Place) (Owner, bool) {
	pg := b.pages[keyOf(p)]
	if pg == nil || pg.used>>(p.ID%pageIDs)&1 == 0 {
		return Owner{}, false
	}
	return pg.owners[p.ID%pageIDs], true
}

// Of returns the place of a token.
func (b *Book) Of(token string) (network.Place, bool) {
	p, ok := b.tokens[token]
	return p, ok
}

// Len counts the reservations.
func (b *Book) Len() int { return len(b.tokens) }

// Used counts the reservations of a kind on a device.
func (b *Book) Used(kind, device string) int { return b.used[pool{kind, device}] }

// All returns the reservations by kind, device and ID.
func (b *Book) All() iter.Seq[Reservation] {
	keys := slices.SortedFunc(maps.Keys(b.pages), func(x, y pageKey) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.device, y.device), cmp.Compare(x.number, y.number))
	})
	return func(yield func(Reservation) bool) {
		for _, key := range keys {
			for r := range b.pages[key].all(key) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (p *page) all(key pageKey) iter.Seq[Reservation] {
	return func(yield func(Reservation) bool) {
		for word := p.used; word != 0; word &= word - 1 {
			bit := bits.TrailingZeros64(word)
			place := network.Place{Kind: key.kind, Device: key.device, ID: key.number*pageIDs + bit}
			if !yield(Reservation{Place: place, Owner: p.owners[bit]}) {
				return
			}
		}
	}
}
