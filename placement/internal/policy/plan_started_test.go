// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func job(change func(*Object)) Object {
	return object(func(o *Object) {
		o.Kind = schema.GroupKind{Group: "batch", Kind: "Job"}
		if change != nil {
			change(o)
		}
	})
}

func unlimited(string) (*int64, string) { return nil, "" }

// An object that runs once and has started stays where it is, whatever is asked, and starts nowhere else.
func TestPlanOfStarted(t *testing.T) {
	t.Parallel()
	drain := func(s *v1alpha1.ClusterSpec) { s.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainMove} }
	taint := func(s *v1alpha1.ClusterSpec) {
		s.Taints = []v1alpha1.Taint{{Key: "broken", Effect: v1alpha1.TaintNoExecute}}
	}
	const stays, again = "it has started in east, or may have, and does not run a second time: it stays there", "delete it and create it again"
	type m = map[string]int64
	for name, tc := range map[string]struct {
		reason     string
		annotation string
		mode       v1alpha1.ReplicaMode
		count      *int32
		assigned   m
		removing   []string
		started    []string
		finished   bool
		deletedIn  string
		east       func(*v1alpha1.ClusterSpec) // a change of the Cluster
		lost       bool                        // east
		gone       bool                        // the Cluster east
		atLimit    bool                        // the drain of east
		replicas   int64
		want       m
		message    string
		note       string
	}{
		"stays":     {reason: "Nothing else is asked.", annotation: "east,west", assigned: m{"east": 1}, want: m{"east": 0}},
		"annotated": {reason: "A user asks for another cluster.", annotation: "west", assigned: m{"east": 1}, want: m{"east": 0}, message: stays},
		"drained":   {reason: "A drain does not run it again.", annotation: "east,west", assigned: m{"east": 1}, east: drain, want: m{"east": 0}, message: stays},
		"at limit":  {reason: "It needs no slot of the drain.", annotation: "east,west", assigned: m{"east": 1}, east: drain, atLimit: true, want: m{"east": 0}, message: stays},
		"tainted":   {reason: "Nor does a taint.", annotation: "east,west", assigned: m{"east": 1}, east: taint, want: m{"east": 0}, message: stays},
		"lost":      {reason: "It may still run in a lost cluster.", annotation: "east,west", assigned: m{"east": 1}, lost: true, want: m{"east": 0}, message: stays},
		"no Cluster": {
			reason: "It may still run in a cluster that left the inventory.", annotation: "west", assigned: m{"east": 1}, gone: true,
			want: m{"east": 0}, message: stays,
		},
		"removed": {
			reason: "A user removed it with an empty annotation.", annotation: "west", started: []string{"east"}, want: m{},
			message: "it has started in east, or may have, is no longer there, and does not run a second time. To run it again, " + again,
		},
		"removed, same cluster": {
			reason: "It does not run again there either.", annotation: "east", started: []string{"east"}, want: m{}, message: "it has started in east, or may have, is no longer there",
		},
		"being removed": {reason: "A user ordered the removal.", annotation: "west", assigned: m{"east": 1}, removing: []string{"east"}, want: m{}, message: "it has started in east"},
		"taken back":    {reason: "The order is not carried out.", annotation: "east", assigned: m{"east": 1}, removing: []string{"east"}, want: m{"east": 0}},
		"moved before": {
			reason: "An earlier version began to move it.", annotation: "west", assigned: m{"east": 1, "west": 1}, started: []string{"east"},
			want: m{"east": 0}, message: stays,
		},
		"deleted": {
			reason: "Another client deleted it in the cluster.", annotation: "east", assigned: m{"east": 1}, deletedIn: "east",
			want: m{"east": 0}, message: "it has started in east and was deleted there, and does not run a second time. To run it again, " + again,
		},
		"finished": {reason: "It stays for its logs.", annotation: "east,west", assigned: m{"east": 1}, finished: true, want: m{"east": 0}},
		"finished, drained": {
			reason: "A drain takes it from its cluster, and to no other one.", annotation: "east,west", assigned: m{"east": 1}, finished: true, east: drain,
			want: m{}, note: "it has finished in east and does not run a second time: no cluster is to have it",
		},
		"finished, at limit": {
			reason: "It waits for a slot.", annotation: "east,west", assigned: m{"east": 1}, finished: true, east: drain, atLimit: true, want: m{"east": 0},
		},
		"finished, left": {
			reason: "It comes back to no cluster.", annotation: "east,west", started: []string{"east"}, finished: true, want: m{}, note: "it has finished in east",
		},
		"finished, annotated": {
			reason: "It stays for its logs, and does not run where a user asks for it.", annotation: "west", assigned: m{"east": 1}, finished: true,
			want: m{"east": 0}, message: "it has finished in east and does not run a second time: it stays there. To run it again, " + again,
		},
		"finished, deleted": {reason: "Its logs were not needed.", annotation: "east", assigned: m{"east": 1}, finished: true, deletedIn: "east", want: m{"east": 0}},
		"divided": {
			reason: "Its parts stay, whatever the weights are.", annotation: "east=3,west=1", mode: v1alpha1.ReplicasDivide, replicas: 6,
			assigned: m{"east": 3, "west": 3}, want: m{"east": 3, "west": 3},
		},
		"divided, drained": {
			reason: "The other cluster would repeat completions.", annotation: "east,west", mode: v1alpha1.ReplicasDivide, replicas: 6, east: drain,
			assigned: m{"east": 3, "west": 3}, want: m{"east": 3, "west": 3}, message: stays,
		},
		"divided, more clusters": {
			reason: "A new cluster gets no part.", annotation: "east,north,west", mode: v1alpha1.ReplicasDivide, replicas: 6,
			assigned: m{"east": 3, "west": 3}, want: m{"east": 3, "west": 3},
		},
		"divided, other clusters": {
			reason: "Nor does one that replaces another.", annotation: "north,west", mode: v1alpha1.ReplicasDivide, replicas: 6,
			assigned: m{"east": 3, "west": 3}, want: m{"east": 3, "west": 3}, message: stays,
		},
		"divided, count": {
			reason: "A lower count takes no part away.", annotation: "east,west", mode: v1alpha1.ReplicasDivide, replicas: 6, count: new(int32(1)),
			assigned: m{"east": 3, "west": 3}, want: m{"east": 3, "west": 3}, message: "it has started in east, west",
		},
		"divided, grows": {
			reason: "A user raises the parallelism of a work queue.", annotation: "east,north,west", mode: v1alpha1.ReplicasDivide, replicas: 8,
			assigned: m{"east": 3, "west": 3}, want: m{"east": 4, "west": 4},
		},
		"divided, one refuses": {
			reason: "The part that was never created waits for its cluster.", annotation: "east,west", mode: v1alpha1.ReplicasDivide, replicas: 6,
			assigned: m{"east": 3, "west": 3}, started: []string{"west"}, want: m{"east": 3, "west": 3},
		},
		"duplicate, one more": {
			reason: "A policy may ask for a run in each cluster.", annotation: "east,west", mode: v1alpha1.ReplicasDuplicate, assigned: m{"east": 1},
			want: m{"east": 0, "west": 0},
		},
		"duplicate, again": {
			reason: "But not for two in one cluster.", annotation: "east,west", mode: v1alpha1.ReplicasDuplicate, assigned: m{"west": 1},
			started: []string{"east", "west"}, want: m{"west": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := annotated(t, job(func(o *Object) { o.Namespace = "shop" }), tc.annotation)
			if tc.mode != "" {
				p.Spec.Replicas.Mode = tc.mode
			}
			p.Spec.Clusters.Count = tc.count
			in := PlanInput{
				Assigned: tc.assigned, BeingRemoved: map[string]bool{}, Started: map[string]bool{}, Finished: tc.finished,
				DeletedIn: tc.deletedIn, Capacity: unlimited, Replicas: new(max(1, tc.replicas)),
			}
			for _, c := range tc.removing {
				in.BeingRemoved[c] = true
			}
			for c := range tc.assigned {
				in.Started[c] = tc.started == nil
			}
			for _, c := range tc.started {
				in.Started[c] = true
			}
			maps.DeleteFunc(in.Started, func(_ string, started bool) bool { return !started })
			for _, c := range []string{"east", "north", "west"} {
				cluster := accepted(c, nil)
				if c == "east" {
					cluster = accepted(c, tc.east)
					cluster.Lost, cluster.DrainLimitReached = tc.lost, tc.atLimit
					if tc.lost {
						cluster.Reachability = NotReporting
					}
				}
				if c != "east" || !tc.gone {
					in.Clusters = append(in.Clusters, cluster)
				}
			}
			plan, err := p.Plan(in)
			if diff := cmp.Diff(tc.want, plan.Targets); err != nil || diff != "" {
				t.Errorf("%s\n%v, -want +got\n%s", tc.reason, err, diff)
			}
			if !strings.Contains(plan.Message, tc.message) || (tc.message == "") != (plan.Message == "") {
				t.Errorf("%s\nmessage %q, want %q", tc.reason, plan.Message, tc.message)
			}
			if tc.message != "" && plan.Reason != v1alpha1.ReasonRunsOnce || tc.message == "" && plan.Reason != "" {
				t.Errorf("%s\nreason %q", tc.reason, plan.Reason)
			}
			if !strings.Contains(plan.Note, tc.note) || (tc.note == "") != (plan.Note == "") {
				t.Errorf("%s\nnote %q, want %q", tc.reason, plan.Note, tc.note)
			}
		})
	}
}

// A count is how many runs a user orders: the next plans start no others, though the first ones have ended.
func TestCountOfRuns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		count    int32
		assigned []string // first
		started  []string // first
		want     []string
	}{
		"first":          {"Two are asked for.", 2, nil, nil, []string{"a", "c"}},
		"started":        {"The plan is the same after the start.", 2, []string{"a", "c"}, []string{"a", "c"}, []string{"a", "c"}},
		"one more":       {"A user raises the count.", 3, []string{"a", "c"}, []string{"a", "c"}, []string{"a", "b", "c"}},
		"spread":         {"The cluster that has started it counts in its zone.", 2, []string{"b"}, []string{"b"}, []string{"b", "c"}},
		"drained":        {"The run in a was one of two.", 2, []string{"c"}, []string{"a", "c"}, []string{"c"}},
		"refused":        {"A cluster that has created nothing keeps its Work.", 2, []string{"a", "d"}, []string{"a"}, []string{"a", "d"}},
		"more than that": {"An earlier version has started too many.", 2, []string{"a", "b", "c"}, []string{"a", "b", "c"}, []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := annotated(t, job(nil), "a,b,c,d")
			p.Spec.Replicas.Mode, p.Spec.Clusters.Count, p.Spec.Clusters.Spread = v1alpha1.ReplicasDuplicate, &tc.count, "zone"
			in := PlanInput{Assigned: map[string]int64{}, Started: map[string]bool{}, Replicas: new(int64(1)), Capacity: unlimited}
			for cluster, zone := range map[string]string{"a": "1", "b": "1", "c": "2", "d": "2"} {
				c := accepted(cluster, nil)
				c.Labels = map[string]string{"zone": zone}
				in.Clusters = append(in.Clusters, c)
			}
			for _, c := range tc.assigned {
				in.Assigned[c] = 1
			}
			for _, c := range tc.started {
				in.Started[c] = true
			}
			for range 3 {
				plan, err := p.Plan(in)
				got := slices.Sorted(maps.Keys(plan.Targets))
				if err != nil || !slices.Equal(got, tc.want) {
					t.Fatalf("%s\ngot %v, %v, want %v", tc.reason, got, err, tc.want)
				}
				for _, c := range got {
					if in.Assigned[c] = 1; tc.started == nil || len(tc.started) == len(tc.assigned) {
						in.Started[c] = true
					}
				}
			}
		})
	}
}

// onceSimulator runs one Job through plans, with clusters and users that do anything.
type onceSimulator struct {
	in      PlanInput
	policy  *EffectivePolicy
	refuses map[string]bool // clusters with a Work that have created nothing, and have said so
	created map[string]bool
}

// step plans, and carries the plan out as a move that breaks before it makes.
func (s *onceSimulator) step(t *rapid.T) {
	plan, err := s.policy.Plan(s.in)
	if err != nil {
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Fatal(err)
		}
		return // it stays where it is
	}
	isBusy := false
	for name := range s.in.Assigned {
		_, wanted := plan.Targets[name]
		if s.in.BeingRemoved[name] = !wanted; !wanted {
			isBusy = true
		}
	}
	for name := range plan.Targets {
		if _, ok := s.in.Assigned[name]; ok || isBusy {
			continue
		}
		for other := range s.created {
			t.Fatalf("a Work for %s, and %s has created it: %+v", name, other, s.in)
		}
		s.in.Assigned[name], s.in.Started[name] = 1, true
	}
}

// act is what a cluster does with its Work: it creates the object, refuses it, or removes it. The hub reads that at
// once, because an order to remove has the report as its answer.
func (s *onceSimulator) act(t *rapid.T, name string) {
	if _, ok := s.in.Assigned[name]; !ok {
		return
	}
	switch rapid.IntRange(0, 5).Draw(t, "agent") {
	case 0:
		if !s.created[name] {
			s.refuses[name] = true
			delete(s.in.Started, name)
		}
	case 1:
		s.created[name], s.in.Started[name] = true, true
		delete(s.refuses, name)
	case 2:
		if s.in.BeingRemoved[name] {
			delete(s.in.Assigned, name)
			delete(s.in.BeingRemoved, name)
		}
	case 3:
		s.in.Finished = len(s.created) > 0
	}
}

// L9: at most one cluster gets a Work of an object that runs once, unless the first one has created nothing.
func TestStartedRunsInOneCluster(t *testing.T) {
	t.Parallel()
	names := []string{"east", "north", "west"}
	rapid.Check(t, func(t *rapid.T) {
		s := &onceSimulator{
			in: PlanInput{
				Assigned: map[string]int64{}, BeingRemoved: map[string]bool{}, Started: map[string]bool{}, Replicas: new(int64(1)), Capacity: unlimited,
			},
			refuses: map[string]bool{}, created: map[string]bool{},
		}
		for range rapid.IntRange(10, 30).Draw(t, "steps") {
			chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "clusters")
			p, err := Resolve(job(func(o *Object) {
				o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: strings.Join(chosen, ",")}
			}), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s.policy = p; rapid.Bool().Draw(t, "count") {
				s.policy.Spec.Clusters.Count = new(int32(1))
			}
			s.in.Clusters = nil
			for _, name := range names {
				c := accepted(name, func(spec *v1alpha1.ClusterSpec) {
					if rapid.IntRange(0, 3).Draw(t, "drain") == 3 {
						spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainMove}
					}
					spec.Unschedulable = rapid.IntRange(0, 3).Draw(t, "cordon") == 3
				})
				c.Lost = rapid.IntRange(0, 3).Draw(t, "lost") == 3
				if c.Lost {
					c.Reachability = NotReporting
				}
				if rapid.IntRange(0, 9).Draw(t, "exists") > 0 || slices.Contains(chosen, name) {
					s.in.Clusters = append(s.in.Clusters, c)
				}
			}
			s.step(t)
			for _, name := range names {
				s.act(t, name)
			}
		}
	})
}

// What must run in one cluster at a time is not started elsewhere because a cluster is silent.
func TestLostClusterKeepsWhatRunsInOne(t *testing.T) {
	t.Parallel()
	kind := func(group, kind string) Object {
		return object(func(o *Object) { o.Kind = schema.GroupKind{Group: group, Kind: kind} })
	}
	for name, tc := range map[string]struct {
		reason string
		object Object
		change func(*v1alpha1.PlacementSpec)
		stays  bool
	}{
		"Deployment":  {"Its replicas are replaced.", kind("apps", "Deployment"), nil, false},
		"single":      {"A user wants one.", kind("apps", "Deployment"), func(s *v1alpha1.PlacementSpec) { s.Replicas.Mode = v1alpha1.ReplicasSingle }, true},
		"break first": {"A user wants no two.", kind("apps", "Deployment"), func(s *v1alpha1.PlacementSpec) { s.Move.Mode = v1alpha1.BreakBeforeMake }, true},
		"StatefulSet": {"Two Pods would have one identity.", kind("apps", "StatefulSet"), nil, true},
		"CronJob":     {"A schedule would run twice.", kind("batch", "CronJob"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := annotated(t, tc.object, "east,west")
			if tc.change != nil {
				tc.change(&p.Spec)
			}
			east := accepted("east", nil)
			east.Lost, east.Reachability = true, NotReporting
			plan, err := p.Plan(PlanInput{
				Clusters: []Cluster{east, accepted("west", nil)}, Assigned: map[string]int64{"east": 3}, PolicyUnchanged: true,
				Replicas: new(int64(3)), Capacity: unlimited,
			})
			if err != nil {
				t.Fatal(err)
			}
			_, stays := plan.Targets["east"]
			_, comes := plan.Targets["west"]
			if stays != tc.stays || comes == tc.stays {
				t.Errorf("%s\ntargets %v", tc.reason, plan.Targets)
			}
			if tc.stays != (plan.Reason == v1alpha1.ReasonWaitingForCluster) || tc.stays != strings.Contains(plan.Message, "offline.assumeLostAfter does not replace it") {
				t.Errorf("%s\n%s: %s", tc.reason, plan.Reason, plan.Message)
			}
		})
	}
}

// A count chooses clusters with room, and those that run the object before those that have begun to lose it.
func TestCountPrefers(t *testing.T) {
	t.Parallel()
	type m = map[string]int64
	daemons := object(func(o *Object) { o.Kind.Kind = "DaemonSet" })
	for name, tc := range map[string]struct {
		reason            string
		object            Object
		assigned, running m
		leaving           []string
		room              m
		single            bool
		want              m
	}{
		"room":            {reason: "The first one is full.", object: object(nil), room: m{"east": 0}, want: m{"west": 4}},
		"more room":       {reason: "The first one has too little room.", object: object(nil), room: m{"east": 2, "west": 9}, want: m{"west": 4}},
		"some room":       {reason: "None has enough.", object: object(nil), room: m{"east": 0, "west": 2}, want: m{"west": 2}},
		"whole":           {reason: "The first one has no room for it.", object: daemons, room: m{"east": 0}, want: m{"west": 0}},
		"keeps":           {reason: "It stays in a full cluster.", object: object(nil), assigned: m{"east": 4}, room: m{"east": 4}, want: m{"east": 4}},
		"returned":        {reason: "The move to west is done.", object: object(nil), assigned: m{"east": 4, "west": 4}, running: m{"west": 4}, leaving: []string{"east"}, want: m{"west": 4}},
		"returned early":  {reason: "West does not run it yet.", object: object(nil), assigned: m{"east": 4, "west": 4}, leaving: []string{"east"}, want: m{"east": 4}},
		"returned, whole": {reason: "The same holds for a kind without replicas.", object: daemons, assigned: m{"east": 0, "west": 0}, running: m{"west": 1}, leaving: []string{"east"}, want: m{"west": 0}},
		"returned, single": {
			reason: "And without a count.", object: object(nil), single: true, assigned: m{"east": 4, "west": 4}, running: m{"west": 1}, leaving: []string{"east"},
			want: m{"west": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := annotated(t, tc.object, "east,west")
			if p.Spec.Clusters.Count = new(int32(1)); tc.single {
				p.Spec.Clusters.Count, p.Spec.Replicas.Mode = nil, v1alpha1.ReplicasSingle
			}
			in := PlanInput{
				Clusters: []Cluster{accepted("east", nil), accepted("west", nil)}, Assigned: tc.assigned, Running: tc.running,
				Leaving: map[string]bool{}, PolicyUnchanged: true, Replicas: new(int64(4)), Capacity: func(c string) (*int64, string) {
					if n, ok := tc.room[c]; ok {
						return &n, "limits.pods"
					}
					return nil, ""
				},
			}
			if tc.object.Kind.Kind == "DaemonSet" {
				in.Replicas = nil
			}
			for _, c := range tc.leaving {
				in.Leaving[c] = true
			}
			plan, err := p.Plan(in)
			if diff := cmp.Diff(tc.want, plan.Targets); err != nil || diff != "" {
				t.Errorf("%s\n%v, -want +got\n%s", tc.reason, err, diff)
			}
		})
	}
}

// A cluster that returns after its replicas were replaced takes none back, also where all clusters share them.
func TestReturnTakesNothingBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		running int64
		want    map[string]int64
	}{
		"replaced":     {"All replicas run in west.", 4, map[string]int64{"west": 4}},
		"not replaced": {"Two still run in east only.", 2, map[string]int64{"east": 2, "west": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := annotated(t, object(nil), "east,west").Plan(PlanInput{
				Clusters: []Cluster{accepted("east", nil), accepted("west", nil)}, Assigned: map[string]int64{"east": 4, "west": 4},
				Leaving: map[string]bool{"east": true}, Running: map[string]int64{"west": tc.running}, PolicyUnchanged: true,
				Replicas: new(int64(4)), Capacity: unlimited,
			})
			if diff := cmp.Diff(tc.want, plan.Targets); err != nil || diff != "" {
				t.Errorf("%s\n%v, -want +got\n%s", tc.reason, err, diff)
			}
		})
	}
}

// A policy for all kinds does not run in two clusters what must not. One that names the kind may, unless the kind
// runs once.
func TestMoveMode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		kind   schema.GroupKind
		named  bool
		want   v1alpha1.MoveMode
	}{
		"Deployment":         {"It asks for nothing else.", schema.GroupKind{Group: "apps", Kind: "Deployment"}, false, v1alpha1.MakeBeforeBreak},
		"Job":                {"It must not run twice.", schema.GroupKind{Group: "batch", Kind: "Job"}, false, v1alpha1.BreakBeforeMake},
		"Pod, named":         {"It must not, whichever policy asks.", schema.GroupKind{Kind: "Pod"}, true, v1alpha1.BreakBeforeMake},
		"CronJob":            {"A schedule would run twice.", schema.GroupKind{Group: "batch", Kind: "CronJob"}, false, v1alpha1.BreakBeforeMake},
		"StatefulSet":        {"Two Pods would have one identity.", schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, false, v1alpha1.BreakBeforeMake},
		"StatefulSet, named": {"Its user knows it.", schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, true, v1alpha1.MakeBeforeBreak},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			placement := v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all"}}
			placement.Spec.Move.Mode = v1alpha1.MakeBeforeBreak
			if tc.named {
				placement.Spec.Objects = []v1alpha1.ObjectSelector{{Group: tc.kind.Group, Kind: tc.kind.Kind}}
			}
			p, err := Resolve(object(func(o *Object) { o.Kind = tc.kind }), []v1alpha1.Placement{placement}, nil)
			if err != nil || p == nil || p.Spec.Move.Mode != tc.want {
				t.Fatalf("%s\ngot %+v, %v, want %s", tc.reason, p, err, tc.want)
			}
			if tc.kind.Kind == "CronJob" && p.Spec.Replicas.Mode != v1alpha1.ReplicasSingle {
				t.Errorf("replicas.mode: got %s, want Single", p.Spec.Replicas.Mode)
			}
		})
	}
}
