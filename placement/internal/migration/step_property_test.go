// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// simulation simulates clusters with delays: requested replicas become available later, and reports are older
// than the state of the cluster.
type simulation struct {
	in       Input
	clusters map[string]*simulatedCluster
}

type simulatedCluster struct {
	exists                           bool
	requested, available             int32 // now
	reportedAvailable, reportedTotal int32
	revision, reportedRevision       int // of the request
	broken                           bool
}

func newSimulation(t *rapid.T) *simulation {
	c := &simulation{clusters: map[string]*simulatedCluster{}}
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
	for _, s := range c.clusters {
		n += s.available
	}
	return n
}

// setDesired divides a total between random clusters.
func (c *simulation) setDesired(t *rapid.T, total int32) {
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

// readReports sets the targets to the clusters' reports.
func (c *simulation) readReports() {
	for i := range c.in.Targets {
		r := &c.in.Targets[i]
		s := c.clusters[r.Cluster]
		if s == nil {
			s = &simulatedCluster{}
			c.clusters[r.Cluster] = s
		}
		r.Reachable, r.ReportCurrent = true, s.exists && s.reportedRevision == s.revision
		r.Available, r.Total = s.reportedAvailable, s.reportedTotal
		r.Removed = r.State == Removing && !s.exists
		r.AtMost, r.Until = r.Available, c.in.Now
		r.Ready = r.ReportCurrent && r.Available == r.Requested
		r.StableReady = r.Ready
	}
}

// step computes a step and applies it to the clusters.
func (c *simulation) step(t *rapid.T) Output {
	c.readReports()
	before := c.available()
	out := Step(c.in)
	c.apply(out)
	if after, need := c.available(), c.desired()-c.in.MaxUnavailable; after < before && after < need {
		t.Fatalf("available %d -> %d of %d needed\n%+v\n%+v", before, after, need, c.in, out)
	}
	return out
}

// apply applies the requests to the clusters.
func (c *simulation) apply(out Output) {
	var rows []Target
	for i, m := range out.Transitions {
		r := c.in.Targets[i]
		s := c.clusters[r.Cluster]
		switch m.State {
		case Removing, None:
			s.requested, s.available, s.exists = 0, 0, false
		case Active, Draining:
			if m.Requested != s.requested || !s.exists {
				s.revision++
			}
			s.exists, s.requested = true, m.Requested
			s.available = min(s.available, m.Requested)
		}
		r.State, r.Requested, r.Since = m.State, m.Requested, m.Since
		if m.State != None {
			rows = append(rows, r)
		}
	}
	c.in.Targets = rows
}

// advance lets Pods start and reports arrive in some or all clusters.
func (c *simulation) advance(t *rapid.T, all bool) {
	for name, s := range c.clusters {
		if !s.broken && (all || rapid.Bool().Draw(t, "starts in "+name)) {
			s.available = s.requested
		}
		if all || rapid.Bool().Draw(t, "reports of "+name) {
			s.reportedRevision, s.reportedAvailable, s.reportedTotal = s.revision, s.available, s.requested
		}
	}
	c.in.Now = c.in.Now.Add(time.Second)
}

// settle runs steps until nothing changes.
func (c *simulation) settle(t *rapid.T) Output {
	var out Output
	unchanged, before := 0, ""
	for i := 0; ; i++ {
		c.advance(t, true)
		out = c.step(t)
		if after := fmt.Sprint(out.Transitions); after != before {
			unchanged, before = 0, after
		} else if unchanged++; unchanged > 2 {
			return out
		}
		if i > 200 {
			t.Fatalf("never settles: %+v", c.in.Targets)
		}
	}
}

// (I1) No step lowers the available replicas below desired − unavailable, whatever the delays, and healthy
// clusters always reach the desired state.
func TestAvailableReplicasAreKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulation(t)
		total := rapid.Int32Range(1, 12).Draw(t, "replicas")
		c.setDesired(t, total)
		c.settle(t)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			c.setDesired(t, total) // a move without scaling
			for range rapid.IntRange(0, 6).Draw(t, "steps") {
				c.advance(t, false)
				c.step(t)
			}
		}
		if out := c.settle(t); !out.Done {
			t.Fatalf("settled without Done: %+v", out)
		}
		for _, r := range c.in.Targets {
			if !r.Wanted || r.State != Active || r.Requested != r.Desired {
				t.Fatalf("not the desired state: %+v", c.in.Targets)
			}
		}
	})
}

// Replicas without a replacement stay, and the move is blocked.
func TestBrokenTargetBlocksTheMove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulation(t)
		c.in.MaxUnavailable = 0
		total := rapid.Int32Range(1, 12).Draw(t, "replicas")
		c.in.Targets = []Target{{Cluster: "a", Wanted: true, Desired: total}}
		c.settle(t)
		c.clusters["z"] = &simulatedCluster{broken: true}
		c.in.Targets = []Target{c.in.Targets[0], {Cluster: "z", Wanted: true, Desired: total}}
		c.in.Targets[0].Wanted, c.in.Targets[0].Desired = false, 0
		out := c.settle(t)
		if c.clusters["a"].available != total || out.Blocked.Reason == "" || out.Done {
			t.Fatalf("%d of %d left, %+v", c.clusters["a"].available, total, out)
		}
	})
}

// An object that must not run twice never does, whatever the delays.
func TestBreakFirstNeverRunsTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulation(t)
		c.in.BreakBeforeMake = true
		c.in.Divided = rapid.Bool().Draw(t, "divided")
		c.in.Targets = []Target{{Cluster: "a", Wanted: true, Desired: 1}}
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
				c.advance(t, false)
				c.readReports()
				out := Step(c.in)
				c.apply(out)
				running := 0
				for _, s := range c.clusters {
					if s.exists && (s.requested > 0 || s.available > 0 || !c.in.Divided) {
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
