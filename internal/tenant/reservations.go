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
	"github.com/patchbay-cni/patchbay/internal/text"
)

// Reservation is a slot and its owner.
type Reservation struct {
	// Slot is the part of the TenantConfig.
	Slot network.TenantSlot
	// Owner is the network with the slot.
	Owner Owner
}

// checkRoundTrip checks that parsing the encoded reservation returns the same reservation.
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
		return fmt.Errorf("must be the same after encoding: got %s for %s", p, o)
	}
	return nil
}

// Owner is the TenantNetwork with a slot.
type Owner struct {
	// Namespace and Name of the TenantNetwork. The name ends in "*" if the API server generates it: at
	// admission the generated part is unknown.
	Namespace, Name string
	// Token identifies the owner. It is in the network's annotation too.
	Token string
}

// String returns namespace/name.
func (o Owner) String() string { return o.Namespace + "/" + o.Name }

// encode returns the format that parseOwner parses.
func (o Owner) encode() string { return o.String() + " " + o.Token }

var (
	ownerName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9*]([a-z0-9.*-]*[a-z0-9*])?$`)
	ownerToken = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// parseOwner parses "namespace/name token".
func parseOwner(s string) (Owner, error) {
	name, token, _ := strings.Cut(s, " ")
	if !ownerName.MatchString(name) || !ownerToken.MatchString(token) {
		return Owner{}, fmt.Errorf("parse owner %q: must be namespace/name and a token of 16 hexadecimal digits", text.Truncate(s, 100))
	}
	namespace, name, _ := strings.Cut(name, "/")
	return Owner{Namespace: namespace, Name: name, Token: token}, nil
}

// ErrSlotTaken means that another network has the slot.
var ErrSlotTaken = errors.New("slot is taken")

// Reservations are the reservations of a TenantConfig. It is not safe for concurrent use.
type Reservations struct {
	pages  map[pageKey]*page
	tokens map[string]network.TenantSlot
	used   map[pool]int
}

// NewReservations returns an empty set of reservations.
func NewReservations() *Reservations {
	return &Reservations{pages: map[pageKey]*page{}, tokens: map[string]network.TenantSlot{}, used: map[pool]int{}}
}

// ParseReservations parses status.reservations of a TenantConfig. It rejects all that Encode does not
// write, with the name of the page.
func ParseReservations(texts map[string]string) (*Reservations, error) {
	rs := NewReservations()
	for name, text := range texts {
		key, err := parseKey(name)
		if err != nil {
			return nil, err
		}
		p, err := parsePage(key, text)
		if err != nil {
			return nil, fmt.Errorf("parse page %s: %w", name, err)
		}
		rs.pages[key] = p
		rs.used[key.pool] += bits.OnesCount64(p.used)
		for r := range p.all(key) {
			if at, twice := rs.tokens[r.Owner.Token]; twice {
				return nil, fmt.Errorf("parse page %s: an owner must have one slot, and %s has %s and %s", name, r.Owner, at, r.Slot)
			}
			rs.tokens[r.Owner.Token] = r.Slot
		}
	}
	return rs, nil
}

// Encode returns the format that ParseReservations parses. Equal reservations have equal texts.
func (rs *Reservations) Encode() map[string]string {
	texts := make(map[string]string, len(rs.pages))
	for key, p := range rs.pages {
		texts[key.String()] = p.encode(key.number)
	}
	return texts
}

// Add reserves a slot, or returns ErrSlotTaken with the name of the owner. It is idempotent for the same
// token. It rejects a reservation that ParseReservations would not parse, because one such entry would
// make all reservations of the TenantConfig unreadable.
func (rs *Reservations) Add(r Reservation) error {
	if err := r.checkRoundTrip(); err != nil {
		return fmt.Errorf("reserve %s for %q: %w", text.Truncate(r.Slot.String(), 100), text.Truncate(r.Owner.String(), 100), err)
	}
	if o, taken := rs.OwnerAt(r.Slot); taken {
		if o.Token == r.Owner.Token {
			return nil
		}
		return fmt.Errorf("reserve %s for %s: %w by %s", r.Slot, r.Owner, ErrSlotTaken, o)
	}
	if at, has := rs.tokens[r.Owner.Token]; has {
		return fmt.Errorf("reserve %s for %s: an owner must have one slot, and it has %s", r.Slot, r.Owner, at)
	}
	key := keyOf(r.Slot)
	p := rs.pages[key]
	if p == nil {
		p = &page{}
		rs.pages[key] = p
	}
	p.set(r.Slot.ID, r.Owner)
	rs.tokens[r.Owner.Token] = r.Slot
	rs.used[key.pool]++
	return nil
}

// Remove releases the slot of a token and reports whether it had one.
func (rs *Reservations) Remove(token string) bool {
	slot, ok := rs.tokens[token]
	if !ok {
		return false
	}
	key := keyOf(slot)
	rs.pages[key].clear(slot.ID)
	if rs.pages[key].used == 0 {
		delete(rs.pages, key)
	}
	delete(rs.tokens, token)
	rs.used[key.pool]--
	return true
}

// OwnerAt returns the owner of a slot.
func (rs *Reservations) OwnerAt(p network.TenantSlot) (Owner, bool) {
	pg := rs.pages[keyOf(p)]
	if pg == nil || pg.used>>(p.ID%pageIDs)&1 == 0 {
		return Owner{}, false
	}
	return pg.owners[p.ID%pageIDs], true
}

// SlotOf returns the slot of a token.
func (rs *Reservations) SlotOf(token string) (network.TenantSlot, bool) {
	p, ok := rs.tokens[token]
	return p, ok
}

// Len counts the reservations.
func (rs *Reservations) Len() int { return len(rs.tokens) }

// Used counts the reservations of a kind on a device.
func (rs *Reservations) Used(kind, device string) int { return rs.used[pool{kind, device}] }

// All returns the reservations ordered by kind, device and ID.
func (rs *Reservations) All() iter.Seq[Reservation] {
	keys := slices.SortedFunc(maps.Keys(rs.pages), func(x, y pageKey) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.device, y.device), cmp.Compare(x.number, y.number))
	})
	return func(yield func(Reservation) bool) {
		for _, key := range keys {
			for r := range rs.pages[key].all(key) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// lowestFree returns the slot with the lowest ID of the ranges that is not in use and not skipped. Full
// pages cost one comparison each.
func (rs *Reservations) lowestFree(kind, device string, ranges network.VNIRanges, skip func(network.TenantSlot) bool) (network.TenantSlot, bool) {
	lowest, found := network.TenantSlot{}, false
	for _, r := range ranges {
		last := r.Last
		if found {
			last = min(last, lowest.ID-1)
		}
		if p, ok := rs.lowestFreeIn(pool{kind, device}, r.First, last, skip); ok {
			lowest, found = p, true
		}
	}
	return lowest, found
}

func (rs *Reservations) lowestFreeIn(in pool, first, last int, skip func(network.TenantSlot) bool) (network.TenantSlot, bool) {
	for number := first / pageIDs; number <= last/pageIDs; number++ {
		free := ^uint64(0)
		if p := rs.pages[pageKey{in, number}]; p != nil {
			free = ^p.used
		}
		if number == first/pageIDs {
			free &^= 1<<(first%pageIDs) - 1
		}
		for ; free != 0; free &= free - 1 {
			slot := network.TenantSlot{Kind: in.kind, Device: in.device, ID: number*pageIDs + bits.TrailingZeros64(free)}
			if slot.ID > last {
				return network.TenantSlot{}, false
			}
			if skip == nil || !skip(slot) {
				return slot, true
			}
		}
	}
	return network.TenantSlot{}, false
}
