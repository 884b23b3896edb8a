// SPDX-License-Identifier: Apache-2.0

package divide

import "container/heap"

// settle gives out rest replicas one by one, or takes -rest back in the opposite
// order, and returns those for which there is no room.
func settle(all []*seats, rest int64) int64 {
	step := int64(1)
	if rest < 0 {
		step = -1
	}
	q := &queue{step: step}
	for _, s := range all {
		if s.room(step) {
			q.rows = append(q.rows, s)
		}
	}
	heap.Init(q)
	for ; rest != 0 && len(q.rows) > 0; rest -= step {
		s := q.rows[0]
		s.has += step
		if s.room(step) {
			heap.Fix(q, 0)
		} else {
			heap.Pop(q)
		}
	}
	return rest
}

// room tells whether one more replica may be given (step 1) or taken (step -1).
func (s *seats) room(step int64) bool {
	if step > 0 {
		return s.has < s.ceiling
	}
	return s.has > s.floor
}

// before tells whether a's replica number i (from 0) is given before b's number j.
func before(a *seats, i int64, b *seats, j int64) bool {
	if x, y := a.Weight*(2*j+1), b.Weight*(2*i+1); x != y {
		return x > y
	}
	if a.Weight != b.Weight {
		return a.Weight > b.Weight
	}
	return a.Name < b.Name
}

// queue is a heap of the rows that can be given a replica (step 1), the first to get
// one on top, or that can lose one (step -1), the last to have got theirs on top.
type queue struct {
	step int64
	rows []*seats
}

func (q *queue) Len() int      { return len(q.rows) }
func (q *queue) Swap(i, j int) { q.rows[i], q.rows[j] = q.rows[j], q.rows[i] }

func (q *queue) Less(i, j int) bool {
	a, b := q.rows[i], q.rows[j]
	if q.step > 0 {
		return before(a, a.has, b, b.has)
	}
	return before(b, b.has-1, a, a.has-1)
}

// Push is never used: rows only leave. It makes the queue a heap.
func (q *queue) Push(x any) {
	if s, ok := x.(*seats); ok {
		q.rows = append(q.rows, s)
	}
}

// Pop takes the last row out.
func (q *queue) Pop() any {
	last := len(q.rows) - 1
	s := q.rows[last]
	q.rows = q.rows[:last]
	return s
}
