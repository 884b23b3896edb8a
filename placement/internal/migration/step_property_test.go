// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var allClusters = []string{"a", "b", "c", "d"}

// drawWorld returns a world with a random policy.
func drawWorld(t *rapid.T, divided bool) *world {
	in := Input{Divided: divided}
	in.MaxSurge = rapid.Int32Range(0, 12).Draw(t, "surge")
	in.MaxUnavailable = rapid.SampledFrom([]int32{0, 0, 1, 2, 5}).Draw(t, "unavailable")
	in.Stable = time.Duration(rapid.SampledFrom([]int{0, 10, 10, 30}).Draw(t, "stable")) * time.Second
	in.Settle = time.Duration(rapid.SampledFrom([]int{0, 0, 15}).Draw(t, "settle")) * time.Second
	if rapid.IntRange(0, 5).Draw(t, "has a deadline") == 0 {
		in.ProceedAtDeadline, in.Deadline = true, 90*time.Second
	}
	w := newWorld(rapid.Uint64().Draw(t, "seed"), in, allClusters...)
	w.podsDie = rapid.Bool().Draw(t, "Pods die")
	w.slowest = time.Duration(rapid.SampledFrom([]int{2, 5, 40}).Draw(t, "start")) * time.Second
	w.assumesLost = rapid.Bool().Draw(t, "assumes lost")
	w.proceeds = rapid.IntRange(0, 3).Draw(t, "drains proceed") == 0
	return w
}

// wantSome divides a total between one to three random clusters that are not lost.
func (w *world) wantSome(total int32) {
	var usable []string
	for _, c := range w.sorted() {
		if !w.isLost(c) {
			usable = append(usable, c.name)
		}
	}
	if len(usable) == 0 {
		return
	}
	w.random.Shuffle(len(usable), func(i, j int) { usable[i], usable[j] = usable[j], usable[i] })
	usable = usable[:min(len(usable), 1+w.random.IntN(3))]
	replicas := map[string]int32{}
	for _, name := range usable {
		replicas[name] = 0
	}
	for range total {
		replicas[usable[w.random.IntN(len(usable))]]++
	}
	w.want(replicas)
}

// disturb lets things happen that no hub expects; divide changes what is desired.
func (w *world) disturb(divide func()) {
	for _, c := range w.sorted() {
		switch lost := w.isLost(c); {
		case w.chance(0.01):
			w.cut(c, !c.linked)
		case w.chance(0.003):
			c.inInventory, w.event = !c.inInventory, true
		case w.chance(0.005):
			c.broken = w.podsDie && !c.broken
		case w.proceeds && w.chance(0.01):
			c.proceed, w.event = true, true
		case !w.isReachable(c) && w.chance(0.02):
			c.declaredLost, w.event = c.lastBeat, true
		case lost && w.isWanted(c.name): // the policy takes another one
			divide()
		}
	}
	if w.chance(0.01) {
		w.changeLeader()
	}
	if w.chance(0.01) {
		divide()
	}
	if w.chance(0.005) {
		w.in.NoPolicy, w.event = !w.in.NoPolicy, true
	}
}

func (w *world) isWanted(cluster string) bool {
	for _, t := range w.in.Targets {
		if t.Cluster == cluster {
			return t.Wanted
		}
	}
	return false
}

// heal makes the world healthy, and lets it be.
func (w *world) heal() {
	w.healthy, w.in.NoPolicy, w.event = true, false, true
	for _, c := range w.sorted() {
		c.linked, c.inInventory, c.broken = true, true, false
		for i, start := range c.pods {
			if start.Sub(w.now) > w.slowest {
				c.pods[i] = w.now.Add(w.slowest)
			}
		}
	}
}

// (L6) settle lets a healthy world reach what is desired, within the time that its steps need.
func (w *world) settle(t *rapid.T) {
	w.heal()
	limit := w.now
	for range w.stepsLeft() {
		limit = limit.Add(w.in.Stable + 2*heartbeatInterval + w.in.Settle + w.slowest)
	}
	for begin := w.now; !w.isSettled(); w.tick() {
		if w.now.After(limit) {
			t.Fatalf("L6: not settled in %s: blocked %+v\n%s", limit.Sub(begin), w.last.Blocked, w)
		}
		w.fail(t)
	}
	for range 120 { // it stays so
		before := fmt.Sprint(w.in.Targets)
		w.tick()
		if after := fmt.Sprint(w.in.Targets); after != before {
			t.Fatalf("changes after the end\n%s\n%s", before, after)
		}
	}
}

// stepsLeft returns how many steps reach what is desired, with a few for what was not healthy before.
func (w *world) stepsLeft() int32 {
	desired, requested, step := desiredOf(w.in), int32(0), int32(1)
	for _, r := range w.in.Targets {
		requested += r.Requested
	}
	if w.in.Divided {
		step = max(1, min(max(desired/4, w.in.MaxUnavailable), w.in.MaxSurge+w.in.MaxUnavailable))
	}
	return max(desired, requested)/step + 4
}

func (w *world) isSettled() bool {
	if w.event {
		return false
	}
	for _, r := range w.in.Targets {
		if !r.Wanted || r.State != Active || w.in.Divided && r.Requested != r.Desired || r.Fallback != 0 {
			return false
		}
	}
	return w.last.Done
}

func (w *world) String() string {
	s := fmt.Sprintf("now %s, offset %s, %+v\n", w.now.Format(time.TimeOnly), w.offset, w.last)
	for _, r := range w.input().Targets {
		c := w.clusters[r.Cluster]
		s += fmt.Sprintf("%+v\n\tWork %+v, applied %+v, state %+v\n\tlinked %t, unreported %v, sent %+v\n", r, c.work, c.applied, c.state, c.linked, c.unreported, c.reports)
	}
	return s
}

func (w *world) fail(t *rapid.T) {
	if w.failed != "" && !w.podsDie && !w.in.BreakBeforeMake {
		t.Fatalf("I1 in the clusters: %s\n%s", w.failed, w)
	}
}

// Whatever fails, each step keeps to the laws by what is reported; without Pods that die by themselves, no order
// lowers the available replicas below what is needed; and a healthy world reaches what is desired.
func TestMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		w.check = func(in Input, out Output) {
			if v := violation(in, out); v != "" {
				t.Fatalf("%s\nin  %+v\nout %+v", v, in, out)
			}
			if v := falseReason(in, out); v != "" {
				t.Fatalf("%s\nin  %+v\nout %+v", v, in, out)
			}
		}
		total := rapid.Int32Range(1, 16).Draw(t, "replicas")
		w.wantSome(total)
		for range rapid.IntRange(0, 400).Draw(t, "seconds") {
			w.disturb(func() {
				if w.chance(0.3) {
					total = 1 + w.random.Int32N(16)
				}
				w.wantSome(total)
			})
			w.tick()
			w.fail(t)
		}
		w.settle(t)
	})
}

// An object without replicas leaves a cluster only when it has been ready in the others for long enough.
func TestWholeMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, false)
		w.check = func(in Input, out Output) {
			if v := removalViolation(in, out) + falseReason(in, out); v != "" {
				t.Fatalf("%s\nin  %+v\nout %+v", v, in, out)
			}
		}
		w.wantSome(0)
		for range rapid.IntRange(0, 400).Draw(t, "seconds") {
			w.disturb(func() { w.wantSome(0) })
			w.tick()
			w.fail(t)
		}
		w.settle(t)
	})
}

// An object that must not run twice never does, whatever fails, unless an admin has declared a cluster lost that runs
// it. A healthy world reaches what is desired.
func TestBreakFirstNeverRunsTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, rapid.Bool().Draw(t, "divided"))
		w.in.BreakBeforeMake = true
		w.check = func(in Input, out Output) {
			if v := falseReason(in, out); v != "" {
				t.Fatalf("%s\nin  %+v\nout %+v", v, in, out)
			}
			for i, r := range in.Targets {
				if m := out.Transitions[i]; m.Requested < r.Requested && r.State != Removing && (r.Lost || !r.Reachable && !proceedsIn(in, i)) {
					t.Fatalf("an unreachable cluster gets fewer replicas: %+v -> %+v", r, m)
				}
			}
		}
		total := int32(1)
		if w.in.Divided {
			total = rapid.Int32Range(1, 8).Draw(t, "replicas")
		}
		w.wantOneOr(total)
		for range rapid.IntRange(0, 400).Draw(t, "seconds") {
			w.disturb(func() { w.wantOneOr(total) })
			w.tick()
			if running := w.runningUnlost(int(total)); running > int(total) {
				t.Fatalf("%d of %d run\n%s", running, total, w)
			}
		}
		w.settle(t)
	})
}

// runningUnlost returns how many Pods run, but for those in clusters that others have replaced. Such a cluster counts
// again when it has lost the object, or is to have it again and no more than total run in all.
func (w *world) runningUnlost(total int) (running int) {
	all := 0
	for _, c := range w.sorted() {
		n := len(c.pods) + len(c.terminating)
		if all += n; !c.replaced {
			running += n
		}
	}
	for _, c := range w.clusters {
		at := slices.IndexFunc(w.in.Targets, func(r Target) bool { return r.Cluster == c.name })
		c.replaced = c.replaced && at >= 0 && (w.in.Targets[at].State != Active || all > total)
	}
	return running
}

// wantOneOr wants an object that is not divided in one cluster, and divides the replicas of others.
func (w *world) wantOneOr(total int32) {
	if w.in.Divided {
		w.wantSome(total)
		return
	}
	w.want(map[string]int32{allClusters[w.random.IntN(len(allClusters))]: 0})
}

// A receiver that fails takes nothing from the source for good: what the source has lost comes back, the move says what
// it waits for, and it goes on when that is mended.
func TestFailedReceiverBlocksTheMove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int32Range(1, 16).Draw(t, "replicas")
		w := newWorld(rapid.Uint64().Draw(t, "seed"), Input{
			Divided: true, MaxSurge: rapid.Int32Range(1, 16).Draw(t, "surge"), Stable: 10 * time.Second,
		}, "a", "z")
		givenBack := int32(0)
		w.check = func(in Input, out Output) {
			if v := violation(in, out) + falseReason(in, out); v != "" {
				t.Fatalf("%s\nin  %+v\nout %+v", v, in, out)
			}
			givenBack += out.RolledBack
		}
		w.want(map[string]int32{"a": total})
		w.settle(t)

		z := w.clusters["z"]
		w.want(map[string]int32{"z": total})
		for range rapid.IntRange(0, 120).Draw(t, "seconds until z fails") {
			w.tick()
		}
		if z.work.requested == total && w.clusters["a"].work.requested == 0 || !w.clusters["a"].work.exists {
			return // z has replaced a
		}
		z.broken = true
		for i := range z.pods {
			z.pods[i] = w.now.Add(1000 * time.Hour)
		}
		for range 120 {
			w.tick()
		}
		a := w.clusters["a"]
		if a.available(w.now) < total || w.last.Blocked.Reason != NotAvailable || w.last.Blocked.Cluster != "z" || w.last.Done {
			t.Fatalf("a does not have its %d replicas again, or z is not blamed\n%s", total, w)
		}
		if givenBack > total {
			t.Fatalf("%d of %d replicas are given back", givenBack, total)
		}
		w.failed = "" // what a lost after z's Pods had failed, before the hub heard of that
		w.settle(t)
	})
}

// (L7) A move goes on within the time that reports need, when what it waits for is mended.
func TestMendedReasonLetsTheMoveGoOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason BlockedReason
		breaks func(c *simulatedCluster)
		mends  func(c *simulatedCluster)
	}{
		"not available": {
			reason: NotAvailable, breaks: func(c *simulatedCluster) { c.broken, c.pods = true, nil },
			mends: func(c *simulatedCluster) { c.broken, c.pods = false, nil },
		},
		"not reported": {
			reason: NotReported, breaks: func(c *simulatedCluster) { c.nextBeat = c.nextBeat.Add(30 * time.Second) },
			mends: func(*simulatedCluster) {},
		},
		"unreachable": {
			reason: Unreachable, breaks: func(c *simulatedCluster) { c.linked = false },
			mends: func(c *simulatedCluster) { c.linked = true },
		},
		"not in the inventory": {
			reason: NotInInventory, breaks: func(c *simulatedCluster) { c.inInventory = false },
			mends: func(c *simulatedCluster) { c.inInventory = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, Input{Divided: true, MaxSurge: 8, Stable: 10 * time.Second}, "a", "z")
			w.healthy = true
			w.want(map[string]int32{"a": 8})
			w.tickUntil(t, "a has the object", w.isSettled)
			z := w.clusters["z"]
			w.want(map[string]int32{"z": 8})
			w.tickUntil(t, "z starts", func() bool { return z.applied.exists })
			tc.breaks(z)
			w.tickUntil(t, "the move waits for z", func() bool {
				return w.last.Blocked.Reason == tc.reason && w.last.Blocked.Cluster == "z"
			})
			before := requests(w.last)
			for range 60 {
				if tc.reason == NotReported { // it ends by itself
					break
				}
				w.tick()
				w.event = true
			}
			if after := requests(w.last); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Fatalf("goes on before the reason ends: %v -> %v\n%s", before, after, w)
			}
			tc.mends(z)
			end := w.now.Add(w.in.Stable + 2*heartbeatInterval + w.slowest)
			if tc.reason == NotReported {
				end = end.Add(30 * time.Second)
			}
			w.tickUntil(t, "the move goes on", func() bool {
				return w.now.After(end) || fmt.Sprint(requests(w.last)) != fmt.Sprint(before)
			})
			if w.now.After(end) {
				t.Fatalf("does not go on\n%s", w)
			}
		})
	}
}

func (w *world) tickUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 600 {
		if is() {
			return
		}
		w.event = w.event || w.now.Second()%5 == 0
		w.tick()
	}
	t.Fatalf("not within 600 s: %s\n%s", what, w)
}
