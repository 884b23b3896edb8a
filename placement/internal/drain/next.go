// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// BlockedLimit is how long a move may be blocked before the object gives its slot to another one.
const BlockedLimit = time.Minute

// RetryInterval is how long an object without a place elsewhere waits until it is tried again.
const RetryInterval = 30 * time.Second

// State of an object in a draining cluster.
type State int

// States of a candidate.
const (
	// Unknown: the hub has not read the object's priority since the drain began.
	Unknown State = iota
	// Waiting: the object is to leave, and has no slot.
	Waiting
	// Staying: the object has no place elsewhere, or must not leave.
	Staying
	// Moving: the object leaves, or has a slot and is about to leave.
	Moving
)

// Size is what the Pods of an object request in the cluster.
type Size struct {
	// MilliCPU is in thousandths of a CPU.
	MilliCPU int64
	// Memory is in bytes.
	Memory int64
	// Replicas is a count.
	Replicas int64
}

func (s Size) compare(o Size) int {
	return cmp.Or(cmp.Compare(s.MilliCPU, o.MilliCPU), cmp.Compare(s.Memory, o.Memory), cmp.Compare(s.Replicas, o.Replicas))
}

// Candidate is an object in a draining cluster.
type Candidate struct {
	// Name of the object, unique among the candidates.
	Name string
	// Namespace of the object: one namespace must not hold up the others.
	Namespace string
	// Priority of the object: a greater one leaves first.
	Priority int64
	// Size of the object: the smaller of two with the same priority leaves first.
	Size Size
	// State of the object.
	State State
	// IsDependency is true when another object of the hub needs this one. It moves with that one, and needs no
	// slot.
	IsDependency bool
	// DependsOn names the candidates that this one needs.
	DependsOn []string
	// BlockedSince is when a blocked move made its last step; zero while the move is not blocked.
	BlockedSince time.Time
	// TriedAt is when a staying candidate last found no place elsewhere; zero: it is not tried again.
	TriedAt time.Time
}

// Limits bound a drain.
type Limits struct {
	// MaxConcurrentMoves is how many objects may move at a time. As many more may be blocked; when there are more than
	// that, one that is not blocked moves at a time.
	MaxConcurrentMoves int
	// AwaitUnknown keeps back all objects while the priority of one is unknown.
	AwaitUnknown bool
}

// Next returns the names of the candidates that may begin to leave now: first those of the highest priority, then
// the smallest, then by name. A namespace in which many moves are blocked comes after the others. Objects that have no
// place elsewhere are tried again in the slots that remain. Dependencies begin with the objects that need them.
func Next(candidates []Candidate, l Limits, now time.Time) []string {
	if l.AwaitUnknown && slices.ContainsFunc(candidates, Candidate.isUnknown) {
		return nil
	}
	var begin []string
	held := map[string]bool{} // dependencies of objects that do not move yet
	queue := slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return c.IsDependency || !c.mayBegin(now) })
	if free := l.freeSlots(candidates, now); free < len(queue) {
		rank := l.namespaceRanks(candidates, now)
		slices.SortFunc(queue, func(a, b Candidate) int { return compare(a, b, rank) })
		queue = queue[:max(0, free)]
	}
	chosen := map[string]bool{}
	for _, c := range queue {
		chosen[c.Name] = true
		begin = append(begin, c.Name)
	}
	for _, c := range candidates {
		if c.State == Moving || c.IsDependency || chosen[c.Name] {
			continue
		}
		for _, name := range c.DependsOn {
			held[name] = true
		}
	}
	for _, c := range candidates {
		if c.IsDependency && c.mayBegin(now) && !held[c.Name] {
			begin = append(begin, c.Name)
		}
	}
	return begin
}

// freeSlots returns how many objects may begin. A move that has been blocked for long holds no slot, but only as
// many as MaxConcurrentMoves: else a cluster that takes nothing would hold all objects between two clusters at once. The
// others hold a slot each, and leave one for an object that may not be blocked: else they would end the drain.
func (l Limits) freeSlots(candidates []Candidate, now time.Time) int {
	moving, blocked := 0, 0
	for _, c := range candidates {
		switch {
		case c.State != Moving || c.IsDependency:
		case c.isBlocked(now):
			blocked++
		default:
			moving++
		}
	}
	free := l.MaxConcurrentMoves - moving - max(0, blocked-l.MaxConcurrentMoves)
	if blocked > l.MaxConcurrentMoves && moving == 0 {
		return max(1, free)
	}
	return free
}

// namespaceRanks returns which namespaces come later because moves of them are blocked: the rank grows with each half of
// MaxConcurrentMoves. A few blocked moves change nothing, and a namespace whose objects do not start elsewhere, whatever
// priority its users give them, takes few slots before the others have theirs.
func (l Limits) namespaceRanks(candidates []Candidate, now time.Time) map[string]int {
	rank := map[string]int{}
	for _, c := range candidates {
		if c.State == Moving && !c.IsDependency && c.isBlocked(now) {
			rank[c.Namespace]++
		}
	}
	for namespace, blocked := range rank {
		rank[namespace] = 2 * blocked / max(1, l.MaxConcurrentMoves)
	}
	return rank
}

// isUnknown reports whether others wait for the priority of the candidate. They do not wait for dependencies, which
// have no place of their own in the queue.
func (c Candidate) isUnknown() bool { return c.State == Unknown && !c.IsDependency }

func (c Candidate) isBlocked(now time.Time) bool {
	return !c.BlockedSince.IsZero() && now.Sub(c.BlockedSince) >= BlockedLimit
}

func (c Candidate) mayBegin(now time.Time) bool {
	return c.State == Waiting || c.State == Staying && !c.TriedAt.IsZero() && now.Sub(c.TriedAt) >= RetryInterval
}

// compare orders the queue. What has no place elsewhere comes last, and the one that was tried first of them first.
func compare(a, b Candidate, rank map[string]int) int {
	retry := cmp.Compare(a.State, b.State) // Waiting is before Staying
	if retry == 0 && a.State == Staying {
		retry = a.TriedAt.Compare(b.TriedAt)
	}
	return cmp.Or(
		retry, cmp.Compare(rank[a.Namespace], rank[b.Namespace]),
		cmp.Compare(b.Priority, a.Priority), a.Size.compare(b.Size), strings.Compare(a.Name, b.Name),
	)
}
