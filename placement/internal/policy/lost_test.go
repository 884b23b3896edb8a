// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestSilence(t *testing.T) {
	t.Parallel()
	up, silent := accepted("up", nil), accepted("silent", nil)
	silent.Reachability = NotReporting
	changed := func(c Cluster, change func(*Cluster)) Cluster {
		spec := *c.Spec
		c.Spec = &spec
		change(&c)
		return c
	}
	never := changed(silent, func(c *Cluster) { c.Reachability = NeverReported })
	declared := changed(silent, func(c *Cluster) { c.DeclaredLost = true })
	leaving := changed(silent, func(c *Cluster) { c.Deleting = true })
	refused := changed(silent, func(c *Cluster) { c.Spec.Accepted = false })
	for name, tc := range map[string]struct {
		reason   string
		clusters []Cluster
		tooMany  bool
	}{
		"none":              {"All report.", []Cluster{up, up, up}, false},
		"no cluster":        {"There is none to lose.", nil, false},
		"one of one":        {"The hub sees nothing: it may be the cause.", []Cluster{silent}, true},
		"one of two":        {"A half is more than a third: the hub may be on the wrong side.", []Cluster{up, silent}, true},
		"one of three":      {"It is a third, not more.", []Cluster{up, up, silent}, false},
		"two of five":       {"It is more than a third.", []Cluster{up, up, up, silent, silent}, true},
		"two of six":        {"It is a third.", []Cluster{up, up, up, up, silent, silent}, false},
		"never reported":    {"A cluster that was never there is not silent, and no proof that the hub can be reached.", []Cluster{up, silent, never, never}, true},
		"declared lost":     {"Of a declared one the cause is known.", []Cluster{up, up, silent, declared, declared}, false},
		"deleted":           {"It is no cluster any more.", []Cluster{up, up, silent, leaving}, false},
		"not accepted":      {"Anyone may have joined it.", []Cluster{up, up, silent, refused}, false},
		"declared of three": {"The other ones still count.", []Cluster{up, silent, declared}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s := CountSilence(tc.clusters); s.IsTooMany() != tc.tooMany {
				t.Errorf("%s\n%s", tc.reason, s)
			}
		})
	}
}

// A cluster is assumed lost only when one hub has seen it silent for as long as the policy says, without a moment at
// which too many were silent, whatever the clocks of earlier leaders said.
func TestLossClock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		after := time.Duration(rapid.Int64Range(0, 3600).Draw(t, "after")) * time.Second
		leads := time.Unix(100_000, 0)
		draw := func(name string, from, to int64) time.Time {
			return leads.Add(time.Duration(rapid.Int64Range(from, to).Draw(t, name)) * time.Second)
		}
		clock := LossClock{
			ObservedSince: leads,
			SilentSince:   draw("silent since, by a clock that is up to a minute wrong", -7260, 7260), // it may have been stored by another leader
		}
		now := draw("now", 0, 7200)
		if rapid.Bool().Draw(t, "too many were silent") {
			clock.TooManySince = draw("too many since", 0, 7200)
		}
		untilLost, untilHeld := clock.Remaining(now, after)
		after = max(after, 20*time.Second)
		want := now.Sub(clock.ObservedSince) >= after && now.Sub(clock.SilentSince) >= after
		if held := untilHeld <= 0; held != want {
			t.Fatalf("held %t, want %t: %+v", held, want, clock)
		}
		want = want && (clock.TooManySince.IsZero() || now.Sub(clock.TooManySince) >= after)
		if lost := untilLost <= 0; lost != want {
			t.Fatalf("lost %t, want %t: %+v", lost, want, clock)
		}
		if untilLost > 0 { // it is lost then, and not before
			if again, _ := clock.Remaining(now.Add(untilLost), after); again > 0 {
				t.Fatalf("%s are left after %s", again, untilLost)
			}
		}
	})
}

// The heartbeats of clusters that the hub can no longer reach end one after the other: none of the clusters is lost
// before all are silent, however short the time of a policy is.
func TestShortTimeAwaitsAllHeartbeats(t *testing.T) {
	t.Parallel()
	start := time.Unix(100_000, 0)
	const all, spread = 9, 10 * time.Second // each agent sends one in that time
	for now := start; now.Before(start.Add(10 * time.Minute)); now = now.Add(time.Second) {
		silence, tooMany := Silence{All: all}, time.Time{}
		for i := range all {
			at := start.Add(time.Duration(i) * spread / (all - 1))
			if now.Before(at) {
				break
			}
			if silence.Silent++; silence.IsTooMany() && tooMany.IsZero() {
				tooMany = now
			}
		}
		clock := LossClock{SilentSince: start, ObservedSince: start.Add(-time.Hour), TooManySince: tooMany}
		if untilLost, _ := clock.Remaining(now, 2*time.Second); untilLost <= 0 && !silence.IsTooMany() {
			t.Fatalf("the first cluster is lost after %s, while %d of %d are silent", now.Sub(start), silence.Silent, all)
		}
	}
}

// What a lost cluster has, and must run in one cluster at a time, is started elsewhere if an admin has declared the
// cluster lost; not without its data.
func TestDeclaredLostIsReplaced(t *testing.T) {
	t.Parallel()
	job := schema.GroupKind{Group: "batch", Kind: "Job"}
	sts := schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	for name, tc := range map[string]struct {
		reason   string
		kind     schema.GroupKind
		change   func(*PlanInput)
		declared bool
		want     string
		says     string
	}{
		"declared":         {"An admin knows that nothing runs there.", sts, nil, true, "west", ""},
		"assumed":          {"It may run there.", sts, nil, false, "east", "kubectl patchbay cluster declare-lost east"},
		"with data":        {"It would start empty.", sts, func(in *PlanInput) { in.VolumeClaims = map[string]string{"east": "db"} }, true, "east", "PersistentVolumeClaim db has data in east, which is lost"},
		"Job":              {"It runs again, from the start.", job, nil, true, "west", ""},
		"Job, by time":     {"It never runs twice.", job, func(in *PlanInput) { in.Started = map[string]bool{"east": true} }, false, "east", "does not run a second time"},
		"Job, in the west": {"It has started there meanwhile.", job, func(in *PlanInput) { in.Started, in.Assigned["west"] = map[string]bool{"west": true}, 0 }, true, "west", ""},
		"no other cluster": {"It stays, also as Lost.", sts, func(in *PlanInput) { in.Clusters = in.Clusters[:1] }, true, "east", "no cluster takes it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := annotated(t, object(func(o *Object) { o.Kind = tc.kind }), "east,west")
			east := accepted("east", nil)
			east.Lost, east.DeclaredLost, east.Reachability = true, tc.declared, NotReporting
			in := PlanInput{
				Clusters: []Cluster{east, accepted("west", nil)}, Assigned: map[string]int64{"east": 0}, PolicyUnchanged: true,
				Replicas: new(int64(1)), Capacity: unlimited,
			}
			if tc.change != nil {
				tc.change(&in)
			}
			if len(in.Clusters) < 2 {
				p = annotated(t, object(func(o *Object) { o.Kind = tc.kind }), "east")
			}
			plan, err := p.Plan(in)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := plan.Targets[tc.want]; !ok || len(plan.Targets) != 1 || !strings.Contains(plan.Message, tc.says) || tc.says == "" && plan.Message != "" {
				t.Errorf("%s\ngot %v, %s: %s", tc.reason, plan.Targets, plan.Reason, plan.Message)
			}
		})
	}
}

// A cluster that returns takes nothing back, also while its replacement does not run yet. It gets what is new.
func TestReturnedTakesNothingBack(t *testing.T) {
	t.Parallel()
	type m = map[string]int64
	for name, tc := range map[string]struct {
		reason   string
		mode     v1alpha1.ReplicaMode
		replicas int64
		count    *int32
		assigned m
		want     m
	}{
		"divided":   {"West has all of them.", v1alpha1.ReplicasDivide, 8, nil, m{"east": 4, "west": 8}, m{"west": 8}},
		"scaled up": {"East takes new ones.", v1alpha1.ReplicasDivide, 10, nil, m{"east": 4, "west": 8}, m{"east": 2, "west": 8}},
		"short":     {"West had no room for all: what none has is new.", v1alpha1.ReplicasDivide, 8, nil, m{"east": 4, "west": 6}, m{"east": 2, "west": 6}},
		"single":    {"West has it.", v1alpha1.ReplicasSingle, 3, nil, m{"east": 0, "west": 0}, m{"west": 0}},
		"count":     {"West has it.", v1alpha1.ReplicasDuplicate, 3, new(int32(1)), m{"east": 0, "west": 0}, m{"west": 0}},
		"duplicate": {"Each cluster has its own copy.", v1alpha1.ReplicasDuplicate, 3, nil, m{"east": 0, "west": 0}, m{"east": 0, "west": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := annotated(t, object(nil), "east,west")
			p.Spec.Replicas.Mode, p.Spec.Clusters.Count = tc.mode, tc.count
			plan, err := p.Plan(PlanInput{
				Clusters: []Cluster{accepted("east", nil), accepted("west", nil)}, Assigned: tc.assigned, PolicyUnchanged: true,
				Leaving: map[string]bool{"east": true}, Returned: map[string]bool{"east": true}, Replicas: &tc.replicas, Capacity: unlimited,
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Targets) != len(tc.want) {
				t.Errorf("%s\ngot %v, want %v", tc.reason, plan.Targets, tc.want)
			}
			for name, n := range tc.want {
				if got, ok := plan.Targets[name]; !ok || got != n {
					t.Errorf("%s\ngot %v, want %v", tc.reason, plan.Targets, tc.want)
				}
			}
		})
	}
}
