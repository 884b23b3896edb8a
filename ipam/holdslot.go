// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"sync/atomic"
)

// slot has one address. Only its owner writes it; its words are atomic because
// others may look at any time.
type slot struct {
	// tag is twice the number of stores, plus 1 for an IPv4 address.
	tag    atomic.Uint64
	hi, lo atomic.Uint64
}

// store writes an address; the tag first, so that who reads the same tag before
// and after the address, and the slot ready in between, has not read half of it.
func (s *slot) store(a netip.Addr) {
	tag := s.tag.Load()&^1 + 2
	if a.Is4() {
		tag |= 1
	}
	s.tag.Store(tag)
	n := fromAddr(a)
	s.hi.Store(n.hi)
	s.lo.Store(n.lo)
}

func (s *slot) load() netip.Addr {
	is4 := s.tag.Load()&1 == 1
	return u128{hi: s.hi.Load(), lo: s.lo.Load()}.addr(is4)
}

// seems reports whether the slot has that address, or half of it and another.
func (s *slot) seems(n u128) bool { return s.lo.Load() == n.lo && s.hi.Load() == n.hi }
