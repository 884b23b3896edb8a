// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
)

// Limits of a division. They keep the products of comparisons within 64 bits, and a division within a second.
const (
	// MaxTotal is the largest number of replicas of one object.
	MaxTotal = 1_000_000
	// MaxWeight is the largest weight.
	MaxWeight = 1_000_000
)

// Cluster is one cluster of a division.
type Cluster struct {
	// Name of the cluster, unique in the division.
	Name string
	// Weight is the cluster's part of the replicas, relative to the weights of the others. A cluster with
	// weight 0 gets its minimum only.
	Weight int64
	// Min is what the cluster gets before any cluster gets more than its Min, as far as Capacity allows.
	Min int64
	// Max is the upper bound of the policy; nil is no limit. It must be at least Min.
	Max *int64
	// Capacity is how many replicas the cluster has room for, including Current; nil is no limit, and 0 is
	// for a cluster that is drained.
	Capacity *int64
	// Current is how many replicas the cluster has now; 0 for a new division.
	Current int64
}

// Bound is the bound that keeps a cluster from getting more replicas.
type Bound string

// Bounds of a cluster.
const (
	// BoundNone: the cluster has room.
	BoundNone Bound = ""
	// BoundWeight: the weight is 0.
	BoundWeight Bound = "weight"
	// BoundMax: Cluster.Max is reached.
	BoundMax Bound = "max"
	// BoundCapacity: Cluster.Capacity is reached.
	BoundCapacity Bound = "capacity"
)

// Share is the share of one cluster.
type Share struct {
	// Name of the cluster.
	Name string
	// Replicas of the cluster, from 0 to the total.
	Replicas int64
	// Shortfall is how many replicas the cluster lacks to its Min.
	Shortfall int64
	// LimitedBy is the bound that keeps the cluster from getting more.
	LimitedBy Bound
}

// Result of a division.
type Result struct {
	// Shares of the clusters, in the order of their names.
	Shares []Share
	// Unplaced are the replicas for which no cluster has room.
	Unplaced int64
}

// Divide divides total replicas between clusters. Too little room is not an error: the result has the missing
// replicas. Errors for invalid input name cluster and field.
func Divide(total int64, clusters []Cluster) (Result, error) {
	if err := validate(total, clusters); err != nil {
		return Result{}, fmt.Errorf("divide: %w", err)
	}
	all := make([]*allocation, 0, len(clusters))
	var floors int64
	for _, c := range clusters {
		s := newAllocation(c, total)
		floors += s.floor
		all = append(all, s)
	}
	if total < floors { // too few for all minimums: divide up to them
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

// validate returns all errors of the input.
func validate(total int64, clusters []Cluster) error {
	var errs []error
	if total < 0 || total > MaxTotal {
		errs = append(errs, fmt.Errorf("replicas %d: must be 0 to %d", total, MaxTotal))
	}
	seen := make(map[string]bool, len(clusters))
	for _, c := range clusters {
		if c.Name == "" || seen[c.Name] {
			errs = append(errs, fmt.Errorf("cluster %q: the name must be set and unique", c.Name))
		}
		seen[c.Name] = true
		errs = append(errs, c.validate()...)
	}
	return errors.Join(errs...)
}

// validate returns all errors of one cluster.
func (c Cluster) validate() (errs []error) {
	wrong := func(field string, value int64, rule string) {
		errs = append(errs, fmt.Errorf("cluster %q: %s %d: must be %s", c.Name, field, value, rule))
	}
	if c.Weight < 0 || c.Weight > MaxWeight {
		wrong("weight", c.Weight, fmt.Sprintf("0 to %d", MaxWeight))
	}
	if c.Min < 0 {
		wrong("min", c.Min, "0 or more")
	}
	if c.Max != nil && (*c.Max < 0 || *c.Max < c.Min) {
		wrong("max", *c.Max, fmt.Sprintf("at least its min of %d, and not less than 0", c.Min))
	}
	if c.Capacity != nil && *c.Capacity < 0 {
		wrong("capacity", *c.Capacity, "0 or more")
	}
	if c.Current < 0 {
		wrong("current", c.Current, "0 or more")
	}
	return errs
}

// allocation is a cluster with the replicas that it is assigned.
type allocation struct {
	Cluster
	floor, ceiling, assigned int64
	limitedBy                Bound
	limit                    int64 // the upper bound of the cluster itself
}

// newAllocation reduces a cluster's bounds to a floor and a ceiling of at most total.
func newAllocation(c Cluster, total int64) *allocation {
	s := &allocation{Cluster: c, ceiling: total, limit: MaxTotal + 1}
	lower := func(to int64, why Bound) {
		if to < s.limit {
			s.limit, s.limitedBy = to, why
		}
	}
	if c.Max != nil {
		lower(*c.Max, BoundMax)
	}
	if c.Capacity != nil {
		lower(*c.Capacity, BoundCapacity)
	}
	if c.Weight == 0 {
		lower(c.Min, BoundWeight)
	}
	s.ceiling = min(s.ceiling, s.limit)
	s.floor = min(c.Min, s.ceiling)
	return s
}

// distribute assigns rest replicas one by one, or takes -rest replicas back in the opposite order. It returns
// the number of replicas without room.
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

// hasRoom tells whether one more replica may be assigned (step 1) or taken back (step -1).
func (s *allocation) hasRoom(step int64) bool {
	if step > 0 {
		return s.assigned < s.ceiling
	}
	return s.assigned > s.floor
}

// allocationHeap is a heap of the clusters that can get a replica (step 1), with the next one to get it on
// top, or that can lose one (step -1), with the last one that got it on top.
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

// Push implements heap.Interface. It is never called, because clusters only leave the heap.
func (q *allocationHeap) Push(x any) {
	if s, ok := x.(*allocation); ok {
		q.allocations = append(q.allocations, s)
	}
}

// Pop implements heap.Interface.
func (q *allocationHeap) Pop() any {
	last := len(q.allocations) - 1
	s := q.allocations[last]
	q.allocations = q.allocations[:last]
	return s
}

// precedes tells whether a gets its replica number i (from 0) before b gets its number j.
func precedes(a *allocation, i int64, b *allocation, j int64) bool {
	if x, y := a.Weight*(2*j+1), b.Weight*(2*i+1); x != y {
		return x > y
	}
	if a.Weight != b.Weight {
		return a.Weight > b.Weight
	}
	return a.Name < b.Name
}

// newResult returns the shares of all clusters.
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
