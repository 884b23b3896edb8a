// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFollowAutoscalers(t *testing.T) {
	t.Parallel()
	live := func(n int32) *int32 { return &n }
	for name, tc := range map[string]struct {
		reason  string
		wanted  int32
		whole   bool
		targets []AutoscaledTarget
		total   int32
		most    []int32
	}{
		"begins": {
			"what runs is wanted, not what the object requests", 0, false,
			[]AutoscaledTarget{{Requested: 2, Live: live(20)}, {Requested: 2}}, 22, []int32{20, 2},
		},
		"begins with fewer": {"an autoscaler may request less than the object", 0, false, []AutoscaledTarget{{Requested: 5, Live: live(3)}}, 3, []int32{3}},
		"begins whole":      {"each cluster has all replicas", 0, true, []AutoscaledTarget{{Requested: 2, Live: live(20)}, {Requested: 2, Live: live(7)}}, 20, []int32{20, 7}},
		"replaced": {
			"what the hub has requested of the receiver is no growth", 20, false,
			[]AutoscaledTarget{{Requested: 20, Most: 20, Live: live(20)}, {Requested: 20, Live: live(20)}}, 20, []int32{20, 20},
		},
		"leaves": {
			"the number does not fall with the leaving cluster", 20, false,
			[]AutoscaledTarget{{Requested: 5, Most: 20, Live: live(5)}, {Requested: 20, Most: 20, Live: live(20)}}, 20, []int32{20, 20},
		},
		"late": {
			"the leaving cluster's autoscaler has not read its bounds yet", 20, false,
			[]AutoscaledTarget{{Requested: 5, Most: 20, Live: live(20)}, {Requested: 20, Most: 20, Live: live(20)}}, 20, []int32{20, 20},
		},
		"idle receiver": {
			"no load has reached it", 20, false,
			[]AutoscaledTarget{{Requested: 20, Most: 20, Live: live(20)}, {Requested: 20, Most: 20, Live: live(2)}}, 20, []int32{20, 20},
		},
		"grows": {
			"the load grows during the move", 20, false,
			[]AutoscaledTarget{{Requested: 20, Most: 20, Live: live(25)}, {Requested: 20, Most: 20, Live: live(21)}}, 26, []int32{25, 21},
		},
		"counted once": {
			"the growth is stored", 26, false,
			[]AutoscaledTarget{{Requested: 20, Most: 25, Live: live(25)}, {Requested: 20, Most: 21, Live: live(21)}}, 26, []int32{25, 21},
		},
		"grows whole": {"the largest cluster counts", 20, true, []AutoscaledTarget{{Requested: 20, Most: 20, Live: live(22)}, {Requested: 20, Live: live(20)}}, 22, []int32{22, 20}},
		"too many":    {"a hostile cluster reports an absurd number", 0, false, []AutoscaledTarget{{Live: live(2_000_000_000)}, {Live: live(2_000_000_000)}}, 1_000_000, []int32{1_000_000, 1_000_000}},
		"grows too much": {
			"the same in a move", 20, false, []AutoscaledTarget{{Requested: 20, Most: 20, Live: live(2_000_000_000)}}, 1_000_000, []int32{1_000_000},
		},
		"returned": {
			"the others run what the lost cluster had", 0, false,
			[]AutoscaledTarget{{Requested: 20, Live: live(20), Replaced: true}, {Requested: 2, Live: live(7)}}, 7, []int32{20, 7},
		},
		"returned and grows": {
			"what its autoscaler adds is new", 7, false,
			[]AutoscaledTarget{{Requested: 15, Most: 20, Live: live(22), Replaced: true}, {Requested: 7, Most: 7, Live: live(7)}}, 9, []int32{22, 7},
		},
		"returned whole": {
			"each other cluster has all that it needs", 0, true,
			[]AutoscaledTarget{{Requested: 20, Live: live(20), Replaced: true}, {Requested: 2, Live: live(7)}}, 7, []int32{20, 7},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total, most := FollowAutoscalers(tc.wanted, !tc.whole, tc.targets)
			if diff := cmp.Diff(tc.most, most); total != tc.total || diff != "" {
				t.Errorf("%s\nFollowAutoscalers: got %d, want %d; -want +got\n%s", tc.reason, total, tc.total, diff)
			}
		})
	}
}

func allAtOnce(r *Target) { r.AllAtOnce = true }

func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		surge   int32
		targets []Target
		want    []request
	}{
		"replaced": {
			"an autoscaler that the hub does not know would fight against steps", 20,
			[]Target{with(target("east", Draining, 0, 20), allAtOnce), target("west", Active, 20, 20)},
			[]request{{Draining, 0, 20}, {Active, 20, 0}},
		},
		"not replaced": {
			"not before the others have all", 20,
			[]Target{with(target("east", Draining, 0, 20), allAtOnce), with(target("west", Active, 20, 20), only(19, 20))},
			[]request{{Draining, 20, 20}, {Active, 20, 0}},
		},
		"little surge": {
			"its replicas stay until all are replaced, so they take no room", 2,
			[]Target{with(target("east", Draining, 0, 20), allAtOnce), target("west", Active, 20, 2)},
			[]request{{Draining, 20, 20}, {Active, 20, 0}},
		},
		"fails": {
			"it gets back all", 20,
			[]Target{with(target("east", Draining, 0, 0), allAtOnce, fallback(20), changed(10)), with(target("west", Active, 20, 20), only(15, 15))},
			[]request{{Draining, 20, 20}, {Active, 20, 0}},
		},
		"crashing": {
			"what is not available is not needed, but the autoscaler has all or none", 20,
			[]Target{with(target("east", Draining, 0, 20), allAtOnce, only(10, 10)), with(target("west", Active, 20, 20), only(10, 10))},
			[]request{{Draining, 20, 10}, {Active, 20, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := Step(Input{Targets: tc.targets, Divided: true, MaxSurge: tc.surge, Stable: 10 * time.Second, Now: t0.Add(time.Minute)})
			if diff := cmp.Diff(tc.want, requests(out)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// autoscale wants in each cluster of to a share of what runs, and follows what autoscalers add.
func (w *world) autoscale(to []string) {
	var targets []AutoscaledTarget
	var running []*simulatedCluster
	for _, r := range w.in.Targets {
		returned := r.State == Lost && w.isReachable(w.clusters[r.Cluster]) || r.State == Draining && r.Returned
		if c := w.clusters[r.Cluster]; r.State == Active || r.State == Draining || returned {
			t := AutoscaledTarget{Requested: r.Requested, Most: c.most, Replaced: returned}
			if c.report.isScaled {
				t.Live = &c.report.scaled
			}
			targets, running = append(targets, t), append(running, c)
		}
	}
	total, most := FollowAutoscalers(w.wanted, true, targets)
	for i, c := range running {
		if w.wanted == 0 { // the move begins with what runs
			for j := range w.in.Targets {
				if w.in.Targets[j].Cluster == c.name {
					w.in.Targets[j].Requested = most[i]
				}
			}
		}
		c.most = most[i]
	}
	if total == w.wanted && !w.redivide {
		return
	}
	w.wanted, w.redivide = total, false
	replicas := map[string]int32{}
	for i := range total {
		replicas[to[int(i)%len(to)]]++
	}
	w.want(replicas)
}

// Autoscalers change their counts at any time, also down where no load has come yet. No order of the hub lowers the
// available replicas below what autoscalers had requested when the move began, and have added by the reports since;
// and in a world whose autoscalers hold still, the move ends.
func TestAutoscaledMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), Input{
			Divided: true, MaxSurge: rapid.Int32Range(1, 16).Draw(t, "surge"), Stable: 10 * time.Second,
		}, "a", "b", "y", "z")
		w.autoscaled = true
		w.known = rapid.Bool().Draw(t, "the hub knows the autoscalers")
		w.check = func(in Input, out Output) {
			if v := violation(in, out) + falseReason(in, out); v != "" {
				t.Fatalf("%s\nin  %+v\nout %+v", v, in, out)
			}
		}
		w.want(map[string]int32{"a": 1, "b": 1})
		w.settle(t)
		w.healthy = false
		runs := int32(0)
		for _, name := range []string{"a", "b"} {
			w.clusters[name].scaled = rapid.Int32Range(1, 12).Draw(t, "runs in "+name)
			runs += w.clusters[name].scaled
		}
		w.healthy = true
		for range 30 { // the hub hears of that
			w.tick()
		}
		w.healthy = false
		to := rapid.SampledFrom([][]string{{"z"}, {"b"}, {"y", "z"}, {"b", "z"}}).Draw(t, "to")
		w.redivide = true
		w.autoscale(to)
		if w.wanted != runs {
			t.Fatalf("the move wants %d replicas, and %d run", w.wanted, runs)
		}
		for range rapid.IntRange(0, 400).Draw(t, "seconds") {
			for _, c := range w.sorted() {
				if w.chance(0.02) {
					c.scaled = max(1, c.scaled+w.random.Int32N(5)-2)
				}
			}
			w.tick()
			w.autoscale(to)
			if w.known { // else an autoscaler takes replicas that the hub counts on
				w.fail(t)
			}
		}
		// The autoscalers hold still at what is needed.
		for _, c := range w.sorted() {
			c.scaled = max(c.scaled, c.most, c.work.requested)
		}
		for range 60 {
			w.tick()
			w.autoscale(to)
		}
		w.failed = "" // of orders on the way
		w.settle(t)
		if sum := w.available(); sum < runs {
			t.Fatalf("%d run after the move, and %d before it\n%s", sum, runs, w)
		}
	})
}

// A cluster with autoscaled replicas is lost, replaced, and returns. The move that replaces it ends while it is silent.
// When it returns, only what the others run by then is needed, and none of that is lost.
func TestAutoscaledLoss(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), Input{
			Divided: true, MaxSurge: rapid.Int32Range(1, 16).Draw(t, "surge"), Stable: 10 * time.Second,
		}, "a", "b")
		w.autoscaled, w.assumesLost = true, true
		w.known = rapid.Bool().Draw(t, "the hub knows the autoscalers")
		w.want(map[string]int32{"a": 1})
		w.settle(t)
		a, b := w.clusters["a"], w.clusters["b"]
		had := rapid.Int32Range(1, 12).Draw(t, "runs in a")
		a.scaled = had
		for range 30 { // the hub hears of that
			w.tick()
		}
		w.cut(a, false)
		for range 3 * int(unreachableAfter/time.Second) {
			w.tick()
		}
		to := []string{"b"}
		w.redivide = true
		w.autoscale(to)
		for range 300 {
			w.tick()
			w.autoscale(to)
		}
		if target := w.in.Targets[1]; w.in.Targets[0].State != Lost || target.Requested != had || target.Desired != had {
			t.Fatalf("others run %d of %d replicas\n%s", target.Requested, had, w)
		}

		runs := rapid.Int32Range(1, 30).Draw(t, "runs in b")
		w.wanted, w.redivide, b.scaled = 0, true, runs // the move is over
		a.most, b.most = 0, 0
		w.want(map[string]int32{"b": 1})
		for range 60 {
			w.tick()
		}
		w.cut(a, true)
		for !w.isReachable(a) {
			w.tick()
		}
		w.autoscale(to)
		if w.wanted != runs {
			t.Fatalf("the return wants %d replicas, and %d are needed\n%s", w.wanted, runs, w)
		}
		for range 60 {
			w.tick()
			w.autoscale(to)
		}
		w.settle(t)
		if got := w.available(); got != runs || len(w.in.Targets) != 1 {
			t.Fatalf("%d replicas run after the return, and %d are needed\n%s", got, runs, w)
		}
	})
}
