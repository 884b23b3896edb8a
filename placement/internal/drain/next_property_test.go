// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// step is the time between two calls of Next in the simulation.
const step = 5 * time.Second

// simulation is a draining cluster with objects that leave, find no room, or hang.
type simulation struct {
	now        time.Time
	limits     Limits
	candidates []Candidate
	broken     map[string]bool // their moves hang
	homeless   map[string]bool // no other cluster takes them
}

func newSimulation(t *rapid.T) *simulation {
	s := &simulation{now: time.Unix(10_000, 0), broken: map[string]bool{}, homeless: map[string]bool{}}
	s.limits.MaxConcurrentMoves = rapid.IntRange(1, 4).Draw(t, "max")
	n := rapid.IntRange(1, 20).Draw(t, "objects")
	for i := range n {
		c := Candidate{
			Name: fmt.Sprintf("o%02d", i), State: Waiting, Priority: rapid.Int64Range(-1, 2).Draw(t, "priority"),
			Size: Size{MilliCPU: rapid.Int64Range(0, 3).Draw(t, "cpu"), Replicas: rapid.Int64Range(0, 3).Draw(t, "replicas")},
		}
		s.broken[c.Name] = rapid.IntRange(0, 5).Draw(t, "broken") == 0
		s.homeless[c.Name] = rapid.IntRange(0, 5).Draw(t, "homeless") == 0
		if rapid.Bool().Draw(t, "depends") {
			c.DependsOn = []string{fmt.Sprintf("d%d", rapid.IntRange(0, 2).Draw(t, "dependency"))}
		}
		s.candidates = append(s.candidates, c)
	}
	for i := range 3 {
		s.candidates = append(s.candidates, Candidate{Name: fmt.Sprintf("d%d", i), State: Waiting, IsDependency: true})
	}
	return s
}

func (s *simulation) find(name string) *Candidate {
	i := slices.IndexFunc(s.candidates, func(c Candidate) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.candidates[i]
}

// slots returns how many objects move by their stored state, and how many of them have been blocked for long.
func (s *simulation) slots() (moving, blocked int) {
	for _, c := range s.candidates {
		if c.State == Moving && !c.IsDependency {
			moving++
			if c.isBlocked(s.now) {
				blocked++
			}
		}
	}
	return moving, blocked
}

// begin lets the next objects leave, and checks the laws of the queue.
func (s *simulation) begin(t *rapid.T) {
	before := slices.Clone(s.candidates)
	movingBefore, _ := s.slots()
	names := Next(s.candidates, s.limits, s.now)
	chosen := map[string]bool{}
	for _, name := range names {
		chosen[name] = true
		if c := s.find(name); s.homeless[name] {
			c.State, c.TriedAt = Staying, s.now
		} else {
			c.State, c.BlockedSince = Moving, time.Time{}
		}
	}
	moving, blocked := s.slots()
	most := s.limits.MaxConcurrentMoves + min(blocked, s.limits.MaxConcurrentMoves)
	if blocked > s.limits.MaxConcurrentMoves {
		most = max(most, blocked+1)
	}
	if moving > max(most, movingBefore) { // Q1
		t.Fatalf("%d objects move and %d of them are blocked, at most %d may move", moving, blocked, s.limits.MaxConcurrentMoves)
	}
	for _, a := range before { // Q2
		for _, b := range before {
			if !a.IsDependency && !b.IsDependency && chosen[a.Name] && !chosen[b.Name] && b.State == Waiting && b.Priority > a.Priority {
				t.Fatalf("%+v begins before %+v", a, b)
			}
		}
	}
	for _, c := range before { // a dependency does not leave before what needs it
		if c.IsDependency && chosen[c.Name] && slices.ContainsFunc(before, func(o Candidate) bool {
			return o.State != Moving && !chosen[o.Name] && slices.Contains(o.DependsOn, c.Name)
		}) {
			t.Fatalf("%s begins before an object that needs it", c.Name)
		}
	}
}

// advance lets moves end or hang. A new leader has only what is stored.
func (s *simulation) advance(t *rapid.T) {
	s.now = s.now.Add(step)
	needed := map[string]bool{}
	s.candidates = slices.DeleteFunc(s.candidates, func(c Candidate) bool {
		return c.State == Moving && !c.IsDependency && !s.broken[c.Name] && rapid.Bool().Draw(t, "leaves")
	})
	for i := range s.candidates {
		c := &s.candidates[i]
		if c.State == Moving && c.BlockedSince.IsZero() && s.broken[c.Name] {
			c.BlockedSince = s.now
		}
		for _, name := range c.DependsOn {
			needed[name] = true
		}
	}
	s.candidates = slices.DeleteFunc(s.candidates, func(c Candidate) bool { return c.State == Moving && c.IsDependency && !needed[c.Name] })
}

// A queue keeps its limits, and empties as far as the objects can leave, though some moves hang or find no room, the
// limit changes, and another leader takes over.
func TestQueueEmptiesAndKeepsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				s.limits.MaxConcurrentMoves = rapid.IntRange(1, 4).Draw(t, "max")
			case 1: // another leader knows no priority until it has read the objects
				for i := range s.candidates {
					if c := &s.candidates[i]; c.State != Moving {
						c.State, c.TriedAt = Waiting, time.Time{}
					}
				}
			case 2:
				name := rapid.SampledFrom(s.candidates).Draw(t, "object").Name
				s.broken[name], s.homeless[name] = !s.broken[name], false
				s.find(name).BlockedSince = time.Time{}
			}
			s.begin(t)
			if s.advance(t); len(s.candidates) == 0 {
				return
			}
		}
		for name := range s.broken { // all becomes well: the queue empties
			s.broken[name], s.homeless[name] = false, false
			if c := s.find(name); c != nil {
				c.BlockedSince = time.Time{}
			}
		}
		for range 500 {
			s.begin(t)
			if s.advance(t); len(s.candidates) == 0 {
				return
			}
		}
		t.Fatalf("%+v have not left", s.candidates) // Q4
	})
}

// A blocked move holds up the others for BlockedLimit at most.
func TestBlockedMoveGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		for _, c := range s.candidates {
			s.broken[c.Name], s.homeless[c.Name] = false, false
		}
		s.candidates[0].State, s.candidates[0].BlockedSince = Moving, s.now
		s.broken[s.candidates[0].Name] = true
		s.limits.MaxConcurrentMoves = 1
		for s.now.Before(s.candidates[0].BlockedSince.Add(BlockedLimit)) {
			s.now = s.now.Add(step)
		}
		waits := slices.ContainsFunc(s.candidates[1:], func(c Candidate) bool { return c.State == Waiting && !c.IsDependency })
		begun := slices.ContainsFunc(Next(s.candidates, s.limits, s.now), func(name string) bool { return !s.find(name).IsDependency })
		if begun != waits {
			t.Fatalf("others wait: %t, one begins: %t", waits, begun) // Q3
		}
	})
}

// Objects of one namespace that do not start elsewhere, many, small and of a high priority, do not keep those of another
// one in the cluster.
func TestBrokenNamespaceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &simulation{now: time.Unix(10_000, 0), broken: map[string]bool{}, homeless: map[string]bool{}}
		s.limits.MaxConcurrentMoves = rapid.IntRange(1, 4).Draw(t, "max")
		for i := range rapid.IntRange(0, 100).Draw(t, "broken") {
			c := Candidate{Name: fmt.Sprintf("a%02d", i), Namespace: "broken", State: Waiting, Priority: rapid.Int64Range(0, 9).Draw(t, "priority")}
			s.candidates, s.broken[c.Name] = append(s.candidates, c), true
		}
		healthy := rapid.IntRange(1, 20).Draw(t, "healthy")
		for i := range healthy {
			s.candidates = append(s.candidates, Candidate{Name: fmt.Sprintf("b%02d", i), Namespace: "healthy", State: Waiting, Size: Size{Replicas: 1}})
		}
		// The broken ones take all slots once or twice. Then a healthy one begins after each that is blocked at the latest.
		for end := s.now.Add(3*(BlockedLimit+2*step) + time.Duration(healthy)*2*BlockedLimit); s.now.Before(end); {
			for _, name := range Next(s.candidates, s.limits, s.now) {
				s.find(name).State = Moving
			}
			if s.advance(t); !slices.ContainsFunc(s.candidates, func(c Candidate) bool { return c.Namespace == "healthy" }) {
				return
			}
		}
		t.Fatalf("%+v have not left", s.candidates)
	})
}
