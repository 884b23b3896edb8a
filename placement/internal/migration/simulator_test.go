// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// The agents' intervals.
const (
	heartbeatInterval = stability.HeartbeatInterval
	unreachableAfter  = 40 * time.Second
)

// world simulates a hub and its clusters, second by second. Its hub stores what Step returns, sends it, and knows of
// the clusters what their reports say.
type world struct {
	random   *rand.Rand
	in       Input // the policy; Targets are what the hub has stored
	now      time.Time
	offset   time.Duration // of the clock of the hub's leader
	clusters map[string]*simulatedCluster
	wake     time.Time // when the hub computes a step without an event, by its clock
	event    bool
	last     Output // of the last step
	check    func(in Input, out Output)
	failed   string // the first violation in the clusters

	// What the world is like now.
	healthy     bool          // no write and no report is lost, no Pod dies, all clusters are reachable
	podsDie     bool          // by themselves
	slowest     time.Duration // start of a Pod
	assumesLost bool          // the hub assumes silent clusters lost
	proceeds    bool          // drains pass their deadline

	// Of an object whose replicas are left to autoscalers.
	autoscaled bool
	wanted     int32 // in a move; 0 before it
	redivide   bool  // the hub divides what is wanted again
	known      bool  // the hub knows the autoscalers, and sets their bounds
}

func newWorld(seed uint64, in Input, clusters ...string) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 0)), in: in, now: time.Unix(10_000, 0), clusters: map[string]*simulatedCluster{},
		event: true, slowest: 5 * time.Second, check: func(Input, Output) {},
	}
	for _, name := range clusters {
		w.clusters[name] = &simulatedCluster{
			name: name, linked: true, inInventory: true, lastBeat: w.now,
			nextBeat: w.now.Add(w.seconds(0, 10)),
		}
	}
	return w
}

func (w *world) chance(p float64) bool { return w.random.Float64() < p }

func (w *world) seconds(from, to int) time.Duration {
	return time.Duration(from+w.random.IntN(to-from+1)) * time.Second
}

// hubNow is the time by the clock of the hub's leader.
func (w *world) hubNow() time.Time { return w.now.Add(w.offset) }

// sorted returns the clusters in a fixed order, so that a seed is a history.
func (w *world) sorted() []*simulatedCluster {
	var all []*simulatedCluster
	for _, c := range w.clusters {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *simulatedCluster) int { return cmp.Compare(a.name, b.name) })
	return all
}

// want changes the desired replicas; 0 for an object without replicas.
func (w *world) want(replicas map[string]int32) {
	for i := range w.in.Targets {
		t := &w.in.Targets[i]
		t.Desired, t.Wanted = replicas[t.Cluster], false
		if _, t.Wanted = replicas[t.Cluster]; t.Wanted {
			w.clusters[t.Cluster].proceed = false
		}
	}
	for _, c := range w.sorted() {
		n, ok := replicas[c.name]
		if ok && !slices.ContainsFunc(w.in.Targets, func(t Target) bool { return t.Cluster == c.name }) {
			w.in.Targets = append(w.in.Targets, Target{Cluster: c.name, Wanted: true, Desired: n})
		}
	}
	w.in.DesiredSince, w.event = w.hubNow(), true
	for _, c := range w.clusters { // orders on the way were given for the former need, and others may follow for this one
		c.work.need = min(c.work.need, needOf(w.in))
	}
}

// changeLeader starts a hub whose clock differs, and which has seen no report yet but what is stored.
func (w *world) changeLeader() {
	w.offset, w.event = w.seconds(0, 120)-time.Minute, true
	for _, c := range w.sorted() {
		c.history, c.until = nil, time.Time{}
		if c.report.sequence > 0 {
			c.observe(w.hubNow())
		}
	}
}

// tick lets a second pass.
func (w *world) tick() {
	w.now = w.now.Add(time.Second)
	for _, c := range w.sorted() {
		reachable := w.isReachable(c)
		w.beat(c)
		w.receive(c)
		if w.isReachable(c) != reachable {
			w.event = true
		}
		w.apply(c)
		w.run(c)
		w.send(c)
	}
	if w.event || !w.wake.IsZero() && !w.hubNow().Before(w.wake) {
		w.step()
	}
}

// beat sends a heartbeat, with the age of the oldest change that is not reported.
func (w *world) beat(c *simulatedCluster) {
	if w.now.Before(c.nextBeat) {
		return
	}
	c.nextBeat = w.now.Add(heartbeatInterval)
	if !c.linked || !w.healthy && w.chance(0.1) {
		return
	}
	c.lastBeat = w.now
	until := w.hubNow()
	if len(c.unreported) > 0 {
		until = until.Add(-w.now.Sub(c.unreported[0]))
	}
	if until.After(c.until) {
		c.until = until
	}
}

// receive stores the reports that arrive. The API server rejects those that are older than the stored one.
func (w *world) receive(c *simulatedCluster) {
	var later []sentReport
	for _, r := range c.reports {
		if r.arrives.After(w.now) {
			later = append(later, r)
			continue
		}
		if r.linked && c.linked { // the agent gets the answer
			c.unreported = slices.DeleteFunc(c.unreported, func(at time.Time) bool { return !at.After(r.taken) })
		}
		if r.sequence < c.report.sequence {
			continue
		}
		c.report, w.event = r.simulatedReport, true
		c.observe(w.hubNow())
		if !w.healthy && w.chance(0.1) { // repeated
			r.arrives, r.linked = w.now.Add(w.seconds(1, 20)), false
			later = append(later, r)
		}
	}
	c.reports = later
}

// apply lets the cluster read its Work.
func (w *world) apply(c *simulatedCluster) {
	if !c.linked || c.work.revision == c.applied.revision || !w.healthy && w.chance(0.3) {
		return
	}
	before := w.available()
	order := c.work
	c.applied = order
	c.work.need, c.work.unavailable, c.work.proceed = 0, 0, false
	if w.wanted > 0 && order.exists && !order.removing && order.desired >= order.requested { // it needs at least these
		c.scaled = max(c.scaled, order.requested)
	}
	keep := int(c.live(w.known))
	slices.SortFunc(c.pods, time.Time.Compare) // those that are not available go first
	for range max(0, len(c.pods)-keep) {
		c.pods = c.pods[:len(c.pods)-1]
		c.terminating = append(c.terminating, w.now.Add(w.seconds(0, 3)))
	}
	after := w.available()
	if after < before && after < order.need && before-after > order.unavailable && !order.proceed && w.failed == "" {
		w.failed = fmt.Sprintf("%s: %d -> %d available, %d needed, %+v", c.name, before, after, order.need, order)
	}
}

// run lets Pods start, end and die.
func (w *world) run(c *simulatedCluster) {
	if c.applied.exists && !c.applied.removing {
		for c.scaled > 0 && len(c.pods) > int(c.live(w.known)) { // the autoscaler takes them
			c.pods = c.pods[:len(c.pods)-1]
		}
		ending := 0
		if w.in.BreakBeforeMake { // what runs once is not replaced before it has ended
			ending = len(c.terminating)
		}
		for len(c.pods)+ending < int(c.live(w.known)) {
			start := w.now.Add(w.seconds(1, int(w.slowest/time.Second)))
			if c.broken {
				start = w.now.Add(1000 * time.Hour)
			}
			c.pods = append(c.pods, start)
		}
	}
	for i := range c.pods {
		if w.podsDie && !w.healthy && w.chance(0.01) {
			c.pods[i] = w.now.Add(w.seconds(1, 60))
		}
	}
	c.terminating = slices.DeleteFunc(c.terminating, func(end time.Time) bool { return !end.After(w.now) })
	state := simulatedReport{
		sequence: c.state.sequence, revision: c.applied.revision,
		available: c.available(w.now), total: int32(len(c.pods) + len(c.terminating)), isScaled: c.scaled > 0,
	}
	runs := c.applied.exists && !c.applied.removing
	state.removed, state.ready = !runs && state.total == 0, runs && state.available == c.live(w.known)
	if state.isScaled {
		state.scaled = c.live(w.known)
	}
	if state != c.state {
		state.sequence++
		c.state, c.unreported = state, append(c.unreported, w.now)
	}
}

func (w *world) available() (n int32) {
	for _, c := range w.clusters {
		n += c.available(w.now)
	}
	return n
}

// send sends a report of what is not reported yet, one at a time.
func (w *world) send(c *simulatedCluster) {
	waits := slices.ContainsFunc(c.reports, func(r sentReport) bool { return r.linked })
	if !c.linked || len(c.unreported) == 0 || waits || !w.healthy && w.chance(0.3) {
		return
	}
	r := sentReport{simulatedReport: c.state, taken: w.now, arrives: w.now.Add(time.Second), linked: true}
	if !w.healthy {
		r.arrives = w.now.Add(w.seconds(1, 4))
	}
	c.reports = append(c.reports, r)
}

// cut cuts a cluster's link, or restores it. What was sent arrives late, or never; its answer never.
func (w *world) cut(c *simulatedCluster, linked bool) {
	c.linked = linked
	c.reports = slices.DeleteFunc(c.reports, func(sentReport) bool { return w.chance(0.5) })
	for i := range c.reports {
		c.reports[i].linked = false
		c.reports[i].arrives = c.reports[i].arrives.Add(w.seconds(0, 60))
	}
}

func (w *world) isReachable(c *simulatedCluster) bool {
	return c.inInventory && w.now.Sub(c.lastBeat) < unreachableAfter
}

// input returns what the hub knows.
func (w *world) input() Input {
	in := w.in
	in.Now, in.Targets = w.hubNow(), slices.Clone(w.in.Targets)
	for i := range in.Targets {
		r := &in.Targets[i]
		c := w.clusters[r.Cluster]
		sample := c.history.Sample(c.until, in.Stable)
		r.Available, r.AtMost, r.StableReady, r.Until = sample.Available, sample.AtMost, sample.Ready, sample.Until
		r.Ready, r.Total = c.report.ready, c.report.total
		r.Reachable, r.NotInInventory = w.isReachable(c), !c.inInventory
		r.Lost = w.isLost(c)
		r.Proceed = c.proceed && !r.Wanted
		r.AllAtOnce = w.wanted > 0 && !w.known && r.Desired == 0 && c.report.isScaled
		current := c.work.exists && c.report.revision == c.work.revision
		r.Ordered = r.State == Removing || r.State == Lost && c.work.removing
		r.Removed = r.Ordered && (current && c.report.removed || !c.work.exists)
		r.ReportCurrent = current && !c.work.removing && (!in.Divided || c.work.requested == r.Requested)
		if r.State == Removing && c.work.exists {
			r.Requested = c.work.requested
		}
	}
	return in
}

// isLost tells whether others replace a silent cluster: once they do, until it reports. What must not run twice is
// replaced only if an admin has declared the cluster lost.
func (w *world) isLost(c *simulatedCluster) bool {
	isReplaced := slices.ContainsFunc(w.in.Targets, func(t Target) bool { return t.Cluster == c.name && t.State == Lost })
	switch {
	case w.isReachable(c):
		return false
	case isReplaced, c.declaredLost.Equal(c.lastBeat):
		return true
	}
	silent := c.inInventory && w.now.Sub(c.lastBeat) > 2*unreachableAfter
	return w.assumesLost && !w.in.BreakBeforeMake && silent
}

// step computes a step, stores and sends it. The hub may die in between.
func (w *world) step() {
	in := w.input()
	out := Step(in)
	w.check(in, out)
	w.last, w.event, w.wake = out, false, time.Time{}
	if out.RequeueAfter > 0 {
		w.wake = in.Now.Add(out.RequeueAfter)
	}
	if !w.healthy && w.chance(0.1) {
		w.event = true
		return
	}
	var stored []Target
	for i, m := range out.Transitions {
		t := in.Targets[i]
		w.noteLoss(in, i, m)
		if t.State != m.State || t.Requested != m.Requested && t.State != Removing || t.Fallback != m.Fallback || t.Returned != m.Returned || !t.Since.Equal(m.Since) {
			w.event = true
		}
		if m.State != None {
			stored = append(stored, Target{
				Cluster: t.Cluster, Wanted: t.Wanted, Desired: t.Desired,
				State: m.State, Requested: m.Requested, Fallback: m.Fallback, Returned: m.Returned, Since: m.Since,
			})
			if c := w.clusters[t.Cluster]; m.State == Lost {
				c.replaced = true
			}
		} else {
			w.clusters[t.Cluster].work.exists = false
		}
	}
	w.in.Targets = stored
	if !w.healthy && w.chance(0.1) {
		w.event = true
		return
	}
	w.sendWorks()
}

// noteLoss notes with the order what the loss of replicas may cost.
func (w *world) noteLoss(in Input, i int, m Transition) {
	r, work := in.Targets[i], &w.clusters[m.Cluster].work
	if m.Requested >= r.Requested && (m.State != Removing || r.State == Removing) {
		return
	}
	work.need = needOf(in)
	if proceedsIn(in, i) { // orders on the way, too, cost what they do
		for _, c := range w.clusters {
			c.work.proceed = c.work.proceed || c.work.revision != c.applied.revision
		}
		work.proceed = true
	}
	if countedSum(in, in.Targets) < work.need {
		work.unavailable += max(0, r.Requested-m.Requested)
	}
}

// sendWorks writes the Works of the stored targets.
func (w *world) sendWorks() {
	for _, t := range w.in.Targets {
		work := &w.clusters[t.Cluster].work
		next := *work
		switch t.State {
		case Active, Draining:
			next.exists, next.removing, next.requested = true, false, t.Requested
			if w.autoscaled {
				next.desired = t.Desired
			}
			if !w.in.Divided {
				next.requested = 1
			}
		case Removing:
			next.removing = next.exists
		}
		if next != *work {
			next.revision++
			*work = next
		}
	}
}
