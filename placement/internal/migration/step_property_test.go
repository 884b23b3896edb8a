// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// simulation is clusters as they really are: what is asked takes a while to be there, and
// reports are older than what they tell of.
type simulation struct {
	in    Input
	there map[string]*simulatedCluster
}

type simulatedCluster struct {
	exists           bool
	asked, available int32 // now
	told, toldOnes   int32 // as last reported
	revision, toldOf int   // of what was asked, and of what was reported
	broken           bool
}

func newSimulation(t *rapid.T) *simulation {
	c := &simulation{there: map[string]*simulatedCluster{}}
	c.in.Now = time.Unix(1000, 0)
	c.in.MaxSurge = rapid.Int32Range(0, 8).Draw(t, "surge")
	c.in.MaxUnavailable = rapid.Int32Range(0, 2).Draw(t, "unavailable")
	c.in.Divided = true
	return c
}

func (c *simulation) desired() (n int32) {
	for _, r := range c.in.Targets {
		n += r.Desired
	}
	return n
}

func (c *simulation) available() (n int32) {
	for _, s := range c.there {
		n += s.available
	}
	return n
}

// want changes what is wanted.
func (c *simulation) want(t *rapid.T, total int32) {
	rows := map[string]Target{}
	for _, r := range c.in.Targets {
		r.Wanted, r.Desired = false, 0
		rows[r.Cluster] = r
	}
	n := rapid.Int32Range(1, 3).Draw(t, "clusters")
	for i := range n {
		name := string(rune('a' + rapid.IntRange(0, 3).Draw(t, "cluster")))
		share := total / n
		if i == n-1 {
			share = total
		}
		total -= share
		r := rows[name]
		r.Cluster, r.Wanted, r.Desired = name, true, r.Desired+share
		rows[name] = r
	}
	c.in.Targets = nil
	for i := range 4 {
		if r, ok := rows[string(rune('a'+i))]; ok {
			c.in.Targets = append(c.in.Targets, r)
		}
	}
	c.in.DesiredSince = c.in.Now
}

// see brings the reports into the rows.
func (c *simulation) see() {
	for i := range c.in.Targets {
		r := &c.in.Targets[i]
		s := c.there[r.Cluster]
		if s == nil {
			s = &simulatedCluster{}
			c.there[r.Cluster] = s
		}
		r.Reachable, r.ReportCurrent = true, s.exists && s.toldOf == s.revision
		r.Available, r.Total = s.told, s.toldOnes
		r.Removed = r.State == Removing && !s.exists
		r.Ready = r.ReportCurrent && r.Available == r.Requested
	}
}

// step lets the mover act, and the clusters obey.
func (c *simulation) step(t *rapid.T) Output {
	c.see()
	before := c.available()
	out := Step(c.in)
	c.obey(out)
	if after, need := c.available(), c.desired()-c.in.MaxUnavailable; after < before && after < need {
		t.Fatalf("available %d -> %d of %d needed\n%+v\n%+v", before, after, need, c.in, out)
	}
	return out
}

// obey lets the clusters do what is asked.
func (c *simulation) obey(out Output) {
	var rows []Target
	for i, m := range out.Transitions {
		r := c.in.Targets[i]
		s := c.there[r.Cluster]
		switch m.State {
		case Removing, None:
			s.asked, s.available, s.exists = 0, 0, false
		case Active, Draining:
			if m.Requested != s.asked || !s.exists {
				s.revision++
			}
			s.exists, s.asked = true, m.Requested
			s.available = min(s.available, m.Requested)
		}
		r.State, r.Requested, r.Since = m.State, m.Requested, m.Since
		if m.State != None {
			rows = append(rows, r)
		}
	}
	c.in.Targets = rows
}

// pass lets a while go by in some cluster: Pods start, reports arrive.
func (c *simulation) pass(t *rapid.T, all bool) {
	for name, s := range c.there {
		if !s.broken && (all || rapid.Bool().Draw(t, "starts in "+name)) {
			s.available = s.asked
		}
		if all || rapid.Bool().Draw(t, "reports of "+name) {
			s.toldOf, s.told, s.toldOnes = s.revision, s.available, s.asked
		}
	}
	c.in.Now = c.in.Now.Add(time.Second)
}

// settle runs until nothing changes.
func (c *simulation) settle(t *rapid.T) Output {
	var out Output
	for i := 0; ; i++ {
		c.pass(t, true)
		before := fmt.Sprint(c.in.Targets)
		out = c.step(t)
		if fmt.Sprint(c.in.Targets) == before {
			return out
		}
		if i > 200 {
			t.Fatalf("never settles: %+v", c.in.Targets)
		}
	}
}

// (I1) No step lowers what is available below desired − unavailable, whatever is old
// or slow; and a healthy cloud always gets where it is to be.
func TestNoStepTakesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulation(t)
		total := rapid.Int32Range(1, 12).Draw(t, "replicas")
		c.want(t, total)
		c.settle(t)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			c.want(t, total) // a move, not a scaling: that has a test of its own
			for range rapid.IntRange(0, 6).Draw(t, "steps") {
				c.pass(t, false)
				c.step(t)
			}
		}
		if out := c.settle(t); !out.Done {
			t.Fatalf("settled, and not done: %+v", out)
		}
		for _, r := range c.in.Targets {
			if !r.Wanted || r.State != Active || r.Requested != r.Desired {
				t.Fatalf("not where it is to be: %+v", c.in.Targets)
			}
		}
	})
}

// What has no replacement stays, and says so.
func TestBrokenTargetTakesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulation(t)
		c.in.MaxUnavailable = 0
		total := rapid.Int32Range(1, 12).Draw(t, "replicas")
		c.in.Targets = []Target{{Cluster: "a", Wanted: true, Desired: total}}
		c.settle(t)
		c.there["z"] = &simulatedCluster{broken: true}
		c.in.Targets = []Target{c.in.Targets[0], {Cluster: "z", Wanted: true, Desired: total}}
		c.in.Targets[0].Wanted, c.in.Targets[0].Desired = false, 0
		out := c.settle(t)
		if c.there["a"].available != total || out.Blocked == "" || out.Done {
			t.Fatalf("%d of %d left, %+v", c.there["a"].available, total, out)
		}
	})
}

// What must not run twice never does, whatever is old or slow.
func TestBreakFirstNeverRunsTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulation(t)
		c.in.BreakBeforeMake = true
		c.in.Divided = rapid.Bool().Draw(t, "counted")
		at := "a"
		c.in.Targets = []Target{{Cluster: at, Wanted: true, Desired: 1}}
		for range rapid.IntRange(1, 4).Draw(t, "moves") {
			to := string(rune('a' + rapid.IntRange(0, 2).Draw(t, "to")))
			found := false
			for i := range c.in.Targets {
				r := &c.in.Targets[i]
				r.Wanted, r.Desired = r.Cluster == to, 0
				if r.Wanted {
					r.Desired, found = 1, true
				}
			}
			if !found {
				c.in.Targets = append(c.in.Targets, Target{Cluster: to, Wanted: true, Desired: 1})
			}
			for range rapid.IntRange(0, 8).Draw(t, "steps") {
				c.pass(t, false)
				c.see()
				out := Step(c.in)
				c.obey(out)
				running := 0
				for _, s := range c.there {
					if s.exists && (s.asked > 0 || s.available > 0 || !c.in.Divided) {
						running++
					}
				}
				if running > 1 {
					t.Fatalf("runs %d times: %+v", running, out)
				}
			}
		}
	})
}
