// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/ipam"
)

// fill sets the bits of a pool from who covers them: all entries and DanmEps.
func (p *planner) fill(pool *ipam.Pool) error {
	covered, err := p.covered()
	if err != nil {
		return fmt.Errorf("find who covers addresses of %v: %w", pool.CIDR(), err)
	}
	for a := range p.owners.mine {
		pool.MarkAllocated(a)
	}
	for a := range p.owners.theirs {
		pool.MarkAllocated(a)
	}
	for _, e := range covered {
		for _, r := range [...]ipam.Ranges{e.v4, e.v6} {
			for a := range r.All() {
				pool.MarkAllocated(a)
			}
		}
	}
	return nil
}

// covered returns all entries, the own one as it is planned. It needs the
// DanmEps, because its callers do.
func (p *planner) covered() ([]entry, error) {
	if p.owners == nil {
		return nil, errNeedList
	}
	entries := []entry{p.entry}
	for name, h := range p.held {
		if name == p.cfg.Node {
			continue
		}
		e, err := parseEntry(h)
		if err != nil {
			return nil, fmt.Errorf("read entry of %q: %w: %w", name, ErrUnknownState, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// sweep frees the bits that nobody covers. The read of the object came first,
// then the list of DanmEps, and the write will carry that read's
// resourceVersion: whoever covers a bit since then has changed the object.
func (p *planner) sweep() {
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool == nil {
			continue
		}
		covered, err := ipam.New(ipam.Config{CIDR: f.pool.CIDR()})
		if err == nil {
			err = p.fill(covered)
		}
		if err != nil {
			p.collectErr = err
			return
		}
		var loose []netip.Addr
		for a := range f.pool.All() {
			// In use here counts, even if somebody took the DanmEp away by force.
			if _, known := p.book.uses[a]; !known && !covered.Has(a) {
				loose = append(loose, a)
			}
		}
		for _, a := range loose {
			f.pool.Release(a)
		}
		p.collected += int64(len(loose))
	}
}

// moveSubnets starts new bitmaps where the spec has another subnet than was recorded, and
// no address outside of it is held or in use. What lies in it is kept: the subnet may have
// grown, and a node that was taken over may have recorded any. An invalid spec moves
// nothing: releases go on with the subnet that was recorded.
func (p *planner) moveSubnets() error {
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if !f.former || p.obj.Invalid != nil {
			continue
		}
		entries, err := p.covered()
		if err != nil {
			return err
		}
		if p.usedOutside(f, entries) {
			continue // releases go on, claims are refused
		}
		if err := f.reset(); err != nil {
			return err
		}
		if f.pool == nil {
			continue
		}
		if err := p.fill(f.pool); err != nil {
			return err
		}
	}
	return nil
}

// usedOutside reports whether an entry or a DanmEp has an address of the family that is
// not in the subnet of the spec.
func (p *planner) usedOutside(f *family, entries []entry) bool {
	outside := func(a netip.Addr) bool {
		return a.Is4() == (f == &p.v4) && (f.spec == nil || !f.spec.CIDR.Contains(a))
	}
	for i := range entries {
		if slices.ContainsFunc(entries[i].addrs(), outside) {
			return true
		}
	}
	for _, set := range [...]map[netip.Addr]string{p.owners.mine, p.owners.theirs} {
		for a := range set {
			if outside(a) {
				return true
			}
		}
	}
	return false
}
