// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Reservation says who has a place.
type Reservation struct {
	// Slot is the part of the TenantConfig.
	Slot network.TenantSlot
	// Owner has it.
	Owner Owner
}

// checkRoundTrip checks that the texts of a reservation are read as what they were made of.
func (r Reservation) checkRoundTrip() error {
	p, err := network.ParseTenantSlot(r.Slot.String())
	if err != nil {
		return err
	}
	o, err := parseOwner(r.Owner.encode())
	if err != nil {
		return err
	}
	if p != r.Slot || o != r.Owner {
		return fmt.Errorf("it would be read as %s for %s", p, o)
	}
	return nil
}

// Owner is the TenantNetwork that has a place.
type Owner struct {
	// Namespace and Name of the TenantNetwork. The name ends in "*" when the API
	// server was to generate it: it did not say which at the time.
	Namespace, Name string
	// Token is in the network's annotation too. It alone tells owners apart.
	Token string
}

// String returns namespace/name.
func (o Owner) String() string { return o.Namespace + "/" + o.Name }

// encode is what parseOwner reads.
func (o Owner) encode() string { return o.String() + " " + o.Token }

var (
	ownerName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9*]([a-z0-9.*-]*[a-z0-9*])?$`)
	ownerToken = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// parseOwner reads "namespace/name token".
func parseOwner(text string) (Owner, error) {
	name, token, _ := strings.Cut(text, " ")
	if !ownerName.MatchString(name) || !ownerToken.MatchString(token) {
		return Owner{}, fmt.Errorf("parse owner %.100q: want namespace/name and a token of 16 hexadecimal digits", text)
	}
	namespace, name, _ := strings.Cut(name, "/")
	return Owner{Namespace: namespace, Name: name, Token: token}, nil
}

// ErrSlotTaken says that another network has the place.
var ErrSlotTaken = errors.New("place is taken")

// Reservations is what is reserved of a TenantConfig. It is not safe for concurrent use.
type Reservations struct {
	pages  map[pageKey]*page
	tokens map[string]network.TenantSlot
	used   map[pool]int
}

// NewReservations returns a book without reservations.
func NewReservations() *Reservations {
	return &Reservations{pages: map[pageKey]*page{}, tokens: map[string]network.TenantSlot{}, used: map[pool]int{}}
}

// ParseReservations reads status.reservations of a TenantConfig. It refuses what Encode
// does not write, naming the page.
func ParseReservations(texts map[string]string) (*Reservations, error) {
	b := NewReservations()
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
				return nil, fmt.Errorf("parse page %s: %s has %s and %s", name, r.Owner, at, r.Slot)
			}
			b.tokens[r.Owner.Token] = r.Slot
		}
	}
	return b, nil
}

// Encode returns what ParseBook reads. Equal books give equal texts.
func (b *Reservations) Encode() map[string]string {
	texts := make(map[string]string, len(b.pages))
	for key, p := range b.pages {
		texts[key.String()] = p.encode(key.number)
	}
	return texts
}

// Add reserves a place, or returns ErrTaken with the name of who has it. The same
// token at the same place is no error. It refuses what ParseBook would not read back:
// one such entry would make a TenantConfig unreadable for everybody.
func (b *Reservations) Add(r Reservation) error {
	if err := r.checkRoundTrip(); err != nil {
		return fmt.Errorf("reserve %.100s for %.100q: %w", r.Slot, r.Owner, err)
	}
	if o, taken := b.OwnerAt(r.Slot); taken {
		if o.Token == r.Owner.Token {
			return nil
		}
		return fmt.Errorf("reserve %s for %s: %w by %s", r.Slot, r.Owner, ErrSlotTaken, o)
	}
	if at, has := b.tokens[r.Owner.Token]; has {
		return fmt.Errorf("reserve %s for %s: it has %s already", r.Slot, r.Owner, at)
	}
	key := keyOf(r.Slot)
	p := b.pages[key]
	if p == nil {
		p = &page{}
		b.pages[key] = p
	}
	p.set(r.Slot.ID, r.Owner)
	b.tokens[r.Owner.Token] = r.Slot
	b.used[key.pool]++
	return nil
}

// Remove frees the place of a token and reports whether it had one.
func (b *Reservations) Remove(token string) bool {
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

// OwnerAt returns who has a place.
func (b *Reservations) OwnerAt(p network.TenantSlot) (Owner, bool) {
	pg := b.pages[keyOf(p)]
	if pg == nil || pg.used>>(p.ID%pageIDs)&1 == 0 {
		return Owner{}, false
	}
	return pg.owners[p.ID%pageIDs], true
}

// SlotOf returns the place of a token.
func (b *Reservations) SlotOf(token string) (network.TenantSlot, bool) {
	p, ok := b.tokens[token]
	return p, ok
}

// Len counts the reservations.
func (b *Reservations) Len() int { return len(b.tokens) }

// Used counts the reservations of a kind on a device.
func (b *Reservations) Used(kind, device string) int { return b.used[pool{kind, device}] }

// All returns the reservations by kind, device and ID.
func (b *Reservations) All() iter.Seq[Reservation] {
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

// lowestFree returns the lowest ID of the ranges that is not in use and that skip does
// not refuse. Full pages cost one comparison each.
func (b *Reservations) lowestFree(kind, device string, ranges network.VNIRanges, skip func(network.TenantSlot) bool) (network.TenantSlot, bool) {
	lowest, found := network.TenantSlot{}, false
	for _, r := range ranges {
		last := r.Last
		if found {
			last = min(last, lowest.ID-1)
		}
		if p, ok := b.lowestFreeIn(pool{kind, device}, r.First, last, skip); ok {
			lowest, found = p, true
		}
	}
	return lowest, found
}

func (b *Reservations) lowestFreeIn(in pool, first, last int, skip func(network.TenantSlot) bool) (network.TenantSlot, bool) {
	for number := first / pageIDs; number <= last/pageIDs; number++ {
		open := ^uint64(0)
		if p := b.pages[pageKey{in, number}]; p != nil {
			open = ^p.used
		}
		if number == first/pageIDs {
			open &^= 1<<(first%pageIDs) - 1
		}
		for ; open != 0; open &= open - 1 {
			place := network.TenantSlot{Kind: in.kind, Device: in.device, ID: number*pageIDs + bits.TrailingZeros64(open)}
			if place.ID > last {
				return network.TenantSlot{}, false
			}
			if skip == nil || !skip(place) {
				return place, true
			}
		}
	}
	return network.TenantSlot{}, false
}
