// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// cloud is clusters as they really are: what is asked takes a while to be there, and
// reports are older than what they tell of.
type cloud struct {
	in    Input
	there map[string]*site
}

type site struct {
	exists           bool
	asked, available int32 // now
	told, toldOnes   int32 // as last reported
	revision, toldOf int   // of what was asked, and of what was reported
	broken           bool
}

func newCloud(t *rapid.T) *cloud {
	c := &cloud{there: map[string]*site{}}
	c.in.Now = time.Unix(1000, 0)
	c.in.Surge = rapid.Int32Range(0, 8).Draw(t, "surge")
	c.in.Unavailable = rapid.Int32Range(0, 2).Draw(t, "unavailable")
	c.in.Counted = true
	return c
}

func (c *cloud) desired() (n int32) {
	for _, r := range c.in.Rows {
		n += r.Want
	}
	return n
}

func (c *cloud) available() (n int32) {
	for _, s := range c.there {
		n += s.available
	}
	return n
}

// want changes what is wanted.
func (c *cloud) want(t *rapid.T, total int32) {
	rows := map[string]Row{}
	for _, r := range c.in.Rows {
		r.Wanted, r.Want = false, 0
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
		r.Cluster, r.Wanted, r.Want = name, true, r.Want+share
		rows[name] = r
	}
	c.in.Rows = nil
	for i := range 4 {
		if r, ok := rows[string(rune('a'+i))]; ok {
			c.in.Rows = append(c.in.Rows, r)
		}
	}
	c.in.Since = c.in.Now
}

// see brings the reports into the rows.
func (c *cloud) see() {
	for i := range c.in.Rows {
		r := &c.in.Rows[i]
		s := c.there[r.Cluster]
		if s == nil {
			s = &site{}
			c.there[r.Cluster] = s
		}
		r.Reachable, r.Current = true, s.exists && s.toldOf == s.revision
		r.Available, r.Total = s.told, s.toldOnes
		r.Gone = r.State == Removing && !s.exists
		r.Ready = r.Current && r.Available == r.Asked
	}
}

// step lets the mover act, and the clusters obey.
func (c *cloud) step(t *rapid.T) Output {
	c.see()
	before := c.available()
	out := Step(c.in)
	c.obey(out)
	if after, need := c.available(), c.desired()-c.in.Unavailable; after < before && after < need {
		t.Fatalf("available %d -> %d of %d needed\n%+v\n%+v", before, after, need, c.in, out)
	}
	return out
}

// obey lets the clusters do what is asked.
func (c *cloud) obey(out Output) {
	var rows []Row
	for i, m := range out.Moves {
		r := c.in.Rows[i]
		s := c.there[r.Cluster]
		switch m.State {
		case Removing, None:
			s.asked, s.available, s.exists = 0, 0, false
		case Active, Draining:
			if m.Asked != s.asked || !s.exists {
				s.revision++
			}
			s.exists, s.asked = true, m.Asked
			s.available = min(s.available, m.Asked)
		}
		r.State, r.Asked, r.Since = m.State, m.Asked, m.Since
		if m.State != None {
			rows = append(rows, r)
		}
	}
	c.in.Rows = rows
}

// pass lets a while go by in some cluster: Pods start, reports arrive.
func (c *cloud) pass(t *rapid.T, all bool) {
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
func (c *cloud) settle(t *rapid.T) Output {
	var out Output
	for i := 0; ; i++ {
		c.pass(t, true)
		before := fmt.Sprint(c.in.Rows)
		out = c.step(t)
		if fmt.Sprint(c.in.Rows) == before {
			return out
		}
		if i > 200 {
			t.Fatalf("never settles: %+v", c.in.Rows)
		}
	}
}

// (I1) No step lowers what is available below desired − unavailable, whatever is old
// or slow; and a healthy cloud always gets where it is to be.
func TestNoStepTakesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCloud(t)
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
		for _, r := range c.in.Rows {
			if !r.Wanted || r.State != Active || r.Asked != r.Want {
				t.Fatalf("not where it is to be: %+v", c.in.Rows)
			}
		}
	})
}

// What has no replacement stays, and says so.
func TestBrokenTargetTakesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCloud(t)
		c.in.Unavailable = 0
		total := rapid.Int32Range(1, 12).Draw(t, "replicas")
		c.in.Rows = []Row{{Cluster: "a", Wanted: true, Want: total}}
		c.settle(t)
		c.there["z"] = &site{broken: true}
		c.in.Rows = []Row{c.in.Rows[0], {Cluster: "z", Wanted: true, Want: total}}
		c.in.Rows[0].Wanted, c.in.Rows[0].Want = false, 0
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
		c := newCloud(t)
		c.in.BreakFirst = true
		c.in.Counted = rapid.Bool().Draw(t, "counted")
		at := "a"
		c.in.Rows = []Row{{Cluster: at, Wanted: true, Want: 1}}
		for range rapid.IntRange(1, 4).Draw(t, "moves") {
			to := string(rune('a' + rapid.IntRange(0, 2).Draw(t, "to")))
			found := false
			for i := range c.in.Rows {
				r := &c.in.Rows[i]
				r.Wanted, r.Want = r.Cluster == to, 0
				if r.Wanted {
					r.Want, found = 1, true
				}
			}
			if !found {
				c.in.Rows = append(c.in.Rows, Row{Cluster: to, Wanted: true, Want: 1})
			}
			for range rapid.IntRange(0, 8).Draw(t, "steps") {
				c.pass(t, false)
				c.see()
				out := Step(c.in)
				c.obey(out)
				running := 0
				for _, s := range c.there {
					if s.exists && (s.asked > 0 || s.available > 0 || !c.in.Counted) {
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
