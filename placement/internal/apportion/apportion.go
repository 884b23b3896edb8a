// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
)

// Limits of what is divided. They keep every product of a comparison within 64 bits
// and a division within a second.
const (
	// MaxTotal is the largest number of replicas of one object.
	MaxTotal = 1_000_000
	// MaxWeight is the largest weight.
	MaxWeight = 1_000_000
)

// Cluster is one cluster.
type Cluster struct {
	// Name is the cluster's, unique among the rows.
	Name string
	// Weight is its part of what is divided, relative to the others'. With 0 it gets
	// its minimum and no more.
	Weight int64
	// Min is what it gets before anybody gets more than theirs, as far as Capacity
	// allows.
	Min int64
	// Max is what the policy lets it have at most; nil is no limit. It is not less than Min.
	Max *int64
	// Capacity is what it has room for in all, Current included; nil is no limit, 0 a
	// cluster that is drained.
	Capacity *int64
	// Current is what it has now, 0 for a new division.
	Current int64
}

// Bound is what keeps a cluster from having more.
type Bound string

// What bounds a cluster.
const (
	// BoundNone leaves it room.
	BoundNone Bound = ""
	// BoundWeight is a weight of 0.
	BoundWeight Bound = "weight"
	// BoundMax is Row.Max.
	BoundMax Bound = "max"
	// BoundCapacity is Row.Capacity.
	BoundCapacity Bound = "capacity"
)

// Share is what one cluster gets.
type Share struct {
	// Name is the row's.
	Name string
	// Replicas are what it gets, between 0 and the total.
	Replicas int64
	// Shortfall is how many replicas are missing to its Min.
	Shortfall int64
	// LimitedBy is what keeps it from having more, if anything does.
	LimitedBy Bound
}

// Result is a division.
type Result struct {
	// Shares are one for each row, in the order of names.
	Shares []Share
	// Unplaced are the replicas for which no cluster has room.
	Unplaced int64
}

// Divide splits total replicas between the rows. Too little room is no error: the
// result says what is missing and where. The errors name the cluster and the field
// that make no sense.
func Divide(total int64, rows []Cluster) (Result, error) {
	if err := validate(total, rows); err != nil {
		return Result{}, fmt.Errorf("divide: %w", err)
	}
	all := make([]*allocation, 0, len(rows))
	var floors int64
	for _, r := range rows {
		s := newAllocation(r, total)
		floors += s.floor
		all = append(all, s)
	}
	if total < floors { // not all minima: divide up to them
		for _, s := range all {
			s.floor, s.ceiling = 0, s.floor
		}
	}
	for _, s := range all {
		s.assigned = min(max(s.Current, s.floor), s.ceiling)
		total -= s.assigned
	}
	return newResult(all, distribute(all, total)), nil
}

// validate says what is wrong with the input, all at once.
func validate(total int64, rows []Cluster) error {
	var errs []error
	if total < 0 || total > MaxTotal {
		errs = append(errs, fmt.Errorf("replicas %d: want 0 to %d", total, MaxTotal))
	}
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		if r.Name == "" || seen[r.Name] {
			errs = append(errs, fmt.Errorf("cluster %q: want a name that no other has", r.Name))
		}
		seen[r.Name] = true
		errs = append(errs, r.validate()...)
	}
	return errors.Join(errs...)
}

// validate says what is wrong with one row.
func (r Cluster) validate() (errs []error) {
	wrong := func(field string, value int64, want string) {
		errs = append(errs, fmt.Errorf("cluster %q: %s %d: want %s", r.Name, field, value, want))
	}
	if r.Weight < 0 || r.Weight > MaxWeight {
		wrong("weight", r.Weight, fmt.Sprintf("0 to %d", MaxWeight))
	}
	if r.Min < 0 {
		wrong("min", r.Min, "0 or more")
	}
	if r.Max != nil && (*r.Max < 0 || *r.Max < r.Min) {
		wrong("max", *r.Max, fmt.Sprintf("at least its min of %d, and not less than 0", r.Min))
	}
	if r.Capacity != nil && *r.Capacity < 0 {
		wrong("capacity", *r.Capacity, "0 or more")
	}
	if r.Current < 0 {
		wrong("current", r.Current, "0 or more")
	}
	return errs
}

// allocation are a row with what it is given.
type allocation struct {
	Cluster
	floor, ceiling, assigned int64
	limitedBy                Bound
	limit                    int64 // the ceiling that the row's own bounds make
}

// newAllocation brings a row's bounds down to a floor and a ceiling of at most total.
func newAllocation(r Cluster, total int64) *allocation {
	s := &allocation{Cluster: r, ceiling: total, limit: MaxTotal + 1}
	lower := func(to int64, why Bound) {
		if to < s.limit {
			s.limit, s.limitedBy = to, why
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

// distribute gives out rest replicas one by one, or takes -rest back in the opposite
// order, and returns those for which there is no room.
func distribute(all []*allocation, rest int64) int64 {
	step := int64(1)
	if rest < 0 {
		step = -1
	}
	q := &allocationHeap{step: step}
	for _, s := range all {
		if s.hasRoom(step) {
			q.allocations = append(q.allocations, s)
		}
	}
	heap.Init(q)
	for ; rest != 0 && len(q.allocations) > 0; rest -= step {
		s := q.allocations[0]
		s.assigned += step
		if s.hasRoom(step) {
			heap.Fix(q, 0)
		} else {
			heap.Pop(q)
		}
	}
	return rest
}

// hasRoom tells whether one more replica may be given (step 1) or taken (step -1).
func (s *allocation) hasRoom(step int64) bool {
	if step > 0 {
		return s.assigned < s.ceiling
	}
	return s.assigned > s.floor
}

// allocationHeap is a heap of the rows that can be given a replica (step 1), the first to get
// one on top, or that can lose one (step -1), the last to have got theirs on top.
type allocationHeap struct {
	step        int64
	allocations []*allocation
}

func (q *allocationHeap) Len() int { return len(q.allocations) }

func (q *allocationHeap) Swap(i, j int) {
	q.allocations[i], q.allocations[j] = q.allocations[j], q.allocations[i]
}

func (q *allocationHeap) Less(i, j int) bool {
	a, b := q.allocations[i], q.allocations[j]
	if q.step > 0 {
		return precedes(a, a.assigned, b, b.assigned)
	}
	return precedes(b, b.assigned-1, a, a.assigned-1)
}

// Push is never used: rows only leave. It makes the queue a heap.
func (q *allocationHeap) Push(x any) {
	if s, ok := x.(*allocation); ok {
		q.allocations = append(q.allocations, s)
	}
}

// Pop takes the last row out.
func (q *allocationHeap) Pop() any {
	last := len(q.allocations) - 1
	s := q.allocations[last]
	q.allocations = q.allocations[:last]
	return s
}

// precedes tells whether a's replica number i (from 0) is given before b's number j.
func precedes(a *allocation, i int64, b *allocation, j int64) bool {
	if x, y := a.Weight*(2*j+1), b.Weight*(2*i+1); x != y {
		return x > y
	}
	if a.Weight != b.Weight {
		return a.Weight > b.Weight
	}
	return a.Name < b.Name
}

// newResult says what each row was given.
func newResult(all []*allocation, unplaced int64) Result {
	res := Result{Unplaced: unplaced}
	slices.SortFunc(all, func(a, b *allocation) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range all {
		share := Share{Name: s.Name, Replicas: s.assigned, Shortfall: max(0, s.Min-s.assigned)}
		if s.assigned >= s.limit {
			share.LimitedBy = s.limitedBy
		}
		res.Shares = append(res.Shares, share)
	}
	return res
}
