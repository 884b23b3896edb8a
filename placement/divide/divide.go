// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"cmp"
	"fmt"
	"slices"
)

// Divide splits total replicas between the rows. Too little room is no error: the
// result says what is missing and where. The errors name the cluster and the field
// that make no sense.
func Divide(total int64, rows []Row) (Result, error) {
	if err := check(total, rows); err != nil {
		return Result{}, fmt.Errorf("divide: %w", err)
	}
	all := make([]*seats, 0, len(rows))
	var floors int64
	for _, r := range rows {
		s := newSeats(r, total)
		floors += s.floor
		all = append(all, s)
	}
	if total < floors { // not all minima: divide up to them
		for _, s := range all {
			s.floor, s.ceiling = 0, s.floor
		}
	}
	for _, s := range all {
		s.has = min(max(s.Current, s.floor), s.ceiling)
		total -= s.has
	}
	return result(all, settle(all, total)), nil
}

// seats are a row with what it is given.
type seats struct {
	Row
	floor, ceiling, has int64
	full                Bound
	limit               int64 // the ceiling that the row's own bounds make
}

// newSeats brings a row's bounds down to a floor and a ceiling of at most total.
func newSeats(r Row, total int64) *seats {
	s := &seats{Row: r, ceiling: total, limit: MaxTotal + 1}
	lower := func(to int64, why Bound) {
		if to < s.limit {
			s.limit, s.full = to, why
		}
	}
	if r.Max != nil {
		lower(*r.Max, BoundMax)
	}
	if r.Capacity != nil {
		lower(*r.Capacity, BoundCapacity)
	}
	if r.Weight == 0 {
		lower(r.Min, BoundWeight)
	}
	s.ceiling = min(s.ceiling, s.limit)
	s.floor = min(r.Min, s.ceiling)
	return s
}

// result says what each row was given.
func result(all []*seats, unplaced int64) Result {
	res := Result{Unplaced: unplaced}
	slices.SortFunc(all, func(a, b *seats) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range all {
		share := Share{Name: s.Name, Replicas: s.has, Short: max(0, s.Min-s.has)}
		if s.has >= s.limit {
			share.Full = s.full
		}
		res.Shares = append(res.Shares, share)
	}
	return res
}
