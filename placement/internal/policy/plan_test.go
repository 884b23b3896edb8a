// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func accepted(name string, change func(*v1alpha1.ClusterSpec)) Cluster {
	spec := &v1alpha1.ClusterSpec{Accepted: true}
	if change != nil {
		change(spec)
	}
	return Cluster{Name: name, Labels: map[string]string{"zone": name[:1]}, Spec: spec}
}

func annotated(t *testing.T, o Object, text string) *EffectivePolicy {
	t.Helper()
	o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: text}
	w, err := Resolve(o, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPlan(t *testing.T) {
	t.Parallel()
	stateful := object(func(o *Object) { o.Kind.Kind = "StatefulSet" })
	daemons := object(func(o *Object) { o.Kind.Kind = "DaemonSet" })
	drain := func(s *v1alpha1.ClusterSpec) { s.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainMove} }
	full := func(s *v1alpha1.ClusterSpec) {
		drain(s)
		s.Properties = map[string]v1alpha1.PropertyValue{"full": "true"}
	}
	cordon := func(s *v1alpha1.ClusterSpec) { s.Unschedulable = true }
	shutOut := func(s *v1alpha1.ClusterSpec) { s.Accepted = false }
	type m = map[string]int64
	for name, tc := range map[string]struct {
		object   Object
		text     string
		replicas int64
		has      m
		same     bool
		room     m
		change   map[string]func(*v1alpha1.ClusterSpec)
		reach    map[string]Reachability
		deleting string // a Cluster
		selected bool   // by labels instead of names
		volumes  map[string]string
		want     m
		short    string
		because  string // the plan's reason, or its error's
		reason   string
	}{
		"one":             {text: "east", replicas: 3, want: m{"east": 3}},
		"nowhere":         {text: "", replicas: 3, has: m{"east": 3}, want: m{}},
		"divided":         {text: "east,west", replicas: 5, want: m{"east": 3, "west": 2}},
		"weights":         {text: "east=3,west=1", replicas: 8, want: m{"east": 6, "west": 2}},
		"too few for all": {text: "east,north,west", replicas: 2, want: m{"east": 1, "north": 1}, reason: "who gets none is left out"},
		"no replicas, drained": {
			text: "east,west", replicas: 0, has: m{"east": 0}, same: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 0}, reason: "a drain empties the cluster of it, too",
		},
		"no replicas":  {text: "east,west", replicas: 0, want: m{"east": 0}, reason: "the object is somewhere all the same"},
		"grows":        {text: "east,west", replicas: 6, has: m{"east": 5}, same: true, want: m{"east": 5, "west": 1}, reason: "who has it keeps it"},
		"new division": {text: "east,west", replicas: 6, has: m{"east": 6}, want: m{"east": 3, "west": 3}, reason: "who asks anew gets it anew"},
		"spills over": {
			text: "east,west", replicas: 8, has: m{"east": 3, "west": 3}, same: true, room: m{"east": 3},
			want: m{"east": 3, "west": 5},
		},
		"nothing fits": {
			text: "east,west", replicas: 8, has: m{"east": 3, "west": 3}, same: true, room: m{"east": 3, "west": 3},
			want: m{"east": 3, "west": 3}, short: "2 of 8 replicas have no room: east has room for 3",
		},
		"move into a full cluster": {
			text: "west", replicas: 3, has: m{"east": 3}, room: m{"west": 1},
			want: m{"west": 1, "east": 2}, short: "2 of 3", reason: "what has no replacement stays",
		},
		"drained": {
			text: "east,west", replicas: 4, has: m{"east": 2, "west": 2}, same: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 4},
		},
		"drained and nowhere to go": {
			text: "east", replicas: 4, has: m{"east": 4}, same: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"east": 4}, short: "4 of 4 replicas have no room",
		},
		"unschedulable keeps": {
			text: "east,west", replicas: 6, has: m{"east": 2, "west": 2}, same: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": cordon}, want: m{"east": 2, "west": 4},
		},
		"single":             {object: stateful, text: "east,west", replicas: 3, want: m{"east": 0}},
		"single stays":       {object: stateful, text: "east,west", replicas: 3, has: m{"west": 3}, want: m{"west": 0}},
		"single, first full": {object: stateful, text: "east,west", replicas: 3, room: m{"east": 2}, want: m{"west": 0}},
		"single, all full":   {object: stateful, text: "east", replicas: 3, room: m{"east": 2}, want: m{}, short: "no cluster takes it: east has room for 2"},
		"duplicate":          {object: daemons, text: "east,west", replicas: -1, want: m{"east": 0, "west": 0}},
		"never seen": {
			text: "east,west", replicas: 6, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 6},
			reason: "a cluster without an agent runs nothing",
		},
		"only one, never seen": {
			text: "east", replicas: 3, reach: map[string]Reachability{"east": NeverReported}, want: m{},
			short: "3 of 3 replicas have no room: east has not reported yet", because: v1alpha1.ReasonWaitingForCluster,
			reason: "the reason names what is waited for",
		},
		"moved to one never seen": {
			text: "east", replicas: 3, has: m{"west": 3}, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 3},
			short: "3 of 3 replicas have no room: east has not reported yet", because: v1alpha1.ReasonWaitingForCluster,
			reason: "nothing leaves for a cluster that cannot take it",
		},
		"no replicas, moved to one never seen": {
			text: "east", replicas: 0, has: m{"west": 0}, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 0},
			short: "no cluster takes it", because: v1alpha1.ReasonWaitingForCluster,
			reason: "an object without replicas is not removed either",
		},
		"re-created Cluster": {
			text: "east,west", replicas: 6, has: m{"east": 3, "west": 3}, same: true,
			reach: map[string]Reachability{"east": NeverReported}, want: m{"east": 3, "west": 3}, reason: "what is there stays there",
		},
		"silent, grows": {
			text: "east,north,west", replicas: 9, has: m{"east": 2, "north": 2, "west": 2}, same: true,
			reach: map[string]Reachability{"north": NotReporting}, want: m{"east": 4, "north": 2, "west": 3}, reason: "growth goes elsewhere",
		},
		"single, silent": {
			object: stateful, text: "east,west", replicas: 3, has: m{"east": 3}, reach: map[string]Reachability{"east": NotReporting},
			want: m{"east": 0}, reason: "a StatefulSet does not leave a cluster because that does not report",
		},
		"single, never seen": {
			object: stateful, text: "east,west", replicas: 3, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 0},
			reason: "it starts where it can",
		},
		"duplicate, one never seen": {
			object: daemons, text: "east,west", replicas: -1, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 0},
			short: "some clusters do not have it yet: east has not reported yet", because: v1alpha1.ReasonWaitingForCluster,
			reason: "each cluster is to have it, and one does not",
		},
		"drain that is full": {
			text: "east,west", replicas: 4, has: m{"east": 2, "west": 2}, same: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": full}, want: m{"east": 2, "west": 2},
			reason: "it leaves when another object has left",
		},
		"volumes stay": {
			text: "west", replicas: 3, has: m{"east": 3}, volumes: map[string]string{"east": "data"}, want: m{"east": 3},
			because: v1alpha1.ReasonVolumesRefused, reason: "the data are in east",
		},
		"volumes and a drain": {
			text: "east,west", replicas: 4, has: m{"east": 4}, same: true, volumes: map[string]string{"east": "data"},
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"east": 4}, reason: "a drain does not move data either",
		},
		"volumes without replicas": {
			text: "east,west", replicas: 1, has: m{"east": 1, "west": 1}, volumes: map[string]string{"east": "data", "west": "data"},
			want: m{"east": 1, "west": 0}, reason: "a claim is not left behind because a replica is",
		},
		"volumes and new weights": {
			text: "east=0,west=1", replicas: 3, has: m{"east": 3}, volumes: map[string]string{"east": "data"}, want: m{"east": 3},
			because: v1alpha1.ReasonVolumesRefused, reason: "replicas in west would start without their data",
		},
		"volumes in both and new weights": {
			text: "east=1,west=3", replicas: 4, has: m{"east": 2, "west": 2}, volumes: map[string]string{"east": "data", "west": "data"},
			want: m{"east": 1, "west": 3}, reason: "each cluster has its data",
		},
		"volumes, removed": {
			text: "", replicas: 1, has: m{"east": 1}, volumes: map[string]string{"east": "data"}, want: m{},
			reason: "a person ordered it",
		},
		"deleted in the foreground": {
			text: "east,west", replicas: 4, has: m{"east": 2, "west": 2}, same: true, deleting: "east",
			want: m{"east": 2, "west": 2}, reason: "deleting a Cluster object is no order to remove what the cluster has",
		},
		"deleted, duplicate": {
			object: daemons, text: "east,west", replicas: -1, has: m{"east": 0, "west": 0}, deleting: "east", selected: true,
			want: m{"east": 0, "west": 0}, reason: "the same for what has no replicas",
		},
		"deleted, nothing new": {
			object: daemons, text: "east,west", replicas: -1, has: m{"west": 0}, deleting: "east",
			want: m{"west": 0}, short: "some clusters do not have it yet: east is being deleted", because: v1alpha1.ReasonWaitingForCluster,
			reason: "it takes nothing either",
		},
		"not accepted any more": {
			object: daemons, text: "east,west", replicas: -1, has: m{"east": 0, "west": 0}, selected: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": shutOut}, want: m{"east": 0, "west": 0},
			reason: "taking the acceptance back is no order to remove",
		},
		"not accepted any more, grows": {
			text: "east,west", replicas: 6, has: m{"east": 2, "west": 2}, same: true, selected: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": shutOut}, want: m{"east": 2, "west": 4}, reason: "growth goes elsewhere",
		},
		"not accepted yet": {
			object: daemons, text: "east,west", replicas: -1, selected: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": shutOut}, want: m{"west": 0}, reason: "a selector leaves it out without a word",
		},
		"named and not accepted": {
			text: "east", replicas: 2, change: map[string]func(*v1alpha1.ClusterSpec){"east": shutOut}, want: m{},
			short: "2 of 2 replicas have no room: east is not accepted", because: v1alpha1.ReasonWaitingForCluster,
		},
		"drained while deleted": {
			text: "east,west", replicas: 4, has: m{"east": 2, "west": 2}, same: true, deleting: "east",
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 4}, reason: "the drain is the order",
		},
		"duplicate, one drains": {
			object: daemons, text: "east,west", replicas: -1, has: m{"east": 0, "west": 0},
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := tc.object
			if o.Name == "" {
				o = object(nil)
			}
			s := PlanInput{Assigned: tc.has, PolicyUnchanged: tc.same, Capacity: func(c string) (*int64, string) {
				if n, ok := tc.room[c]; ok {
					return &n, "limits.pods"
				}
				return nil, ""
			}}
			if tc.replicas >= 0 {
				s.Replicas = &tc.replicas
			}
			for _, c := range []string{"east", "north", "west"} {
				cluster := accepted(c, tc.change[c])
				cluster.Reachability, cluster.DrainLimitReached = tc.reach[c], cluster.Spec.Properties["full"] != ""
				cluster.Deleting = c == tc.deleting
				if strings.Contains(tc.text, c) {
					cluster.Labels["chosen"] = "true"
				}
				s.Clusters = append(s.Clusters, cluster)
			}
			s.VolumeClaims = tc.volumes
			wish := annotated(t, o, tc.text)
			if tc.selected {
				wish.Source, wish.NamesClusters = "Placement shop/p", false
				wish.Spec.Clusters = v1alpha1.ClusterChoice{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"chosen": "true"}}}
			}
			plan, err := wish.Plan(s)
			if mistake, ok := errors.AsType[*Error](err); ok && mistake.Reason == tc.because {
				return
			}
			if tc.because != "" && plan.Reason != tc.because {
				t.Errorf("%s: reason %q, want %q", tc.reason, plan.Reason, tc.because)
			}
			if diff := cmp.Diff(tc.want, plan.Targets); err != nil || diff != "" {
				t.Errorf("%s: %v, -want +got\n%s", tc.reason, err, diff)
			}
			if !strings.HasPrefix(plan.Message, tc.short) || (tc.short == "") != (plan.Message == "") {
				t.Errorf("short %q, want %q", plan.Message, tc.short)
			}
		})
	}
}

func TestPlanNamesUnknownCluster(t *testing.T) {
	t.Parallel()
	_, err := annotated(t, object(nil), "east,nope").Plan(PlanInput{Clusters: []Cluster{accepted("east", nil)}})
	if err == nil || !strings.Contains(err.Error(), `annotations[placement.patchbay.io/clusters]: there is no Cluster "nope"`) {
		t.Errorf("got %v", err)
	}
}

func TestPlanSpreads(t *testing.T) {
	t.Parallel()
	w := annotated(t, object(func(o *Object) { o.Kind.Kind = "DaemonSet" }), "e1,e2,w1")
	w.Spec.Clusters.Count, w.Spec.Clusters.Spread = new(int32(2)), "zone"
	plan, err := w.Plan(PlanInput{
		Clusters: []Cluster{accepted("e1", nil), accepted("e2", nil), accepted("w1", nil)},
		Capacity: func(string) (*int64, string) { return nil, "" },
	})
	if diff := cmp.Diff(map[string]int64{"e1": 0, "w1": 0}, plan.Targets); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// While the wish is the same, growth takes no replica from any cluster, whatever the
// room of each; and all replicas are placed, or it is said that they are not.
func TestGrowthMovesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"east", "north", "west"}
		room := map[string]int64{}
		s := PlanInput{Assigned: map[string]int64{}, Capacity: func(c string) (*int64, string) {
			if n, ok := room[c]; ok {
				return &n, "limits.pods"
			}
			return nil, ""
		}}
		for _, c := range names {
			s.Clusters = append(s.Clusters, accepted(c, nil))
		}
		w := annotated(t, object(nil), "east,north,west")
		total := int64(0)
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			total += rapid.Int64Range(0, 5).Draw(rt, "more")
			for _, c := range names {
				if rapid.Bool().Draw(rt, "limited") {
					room[c] = s.Assigned[c] + rapid.Int64Range(0, 4).Draw(rt, "room")
				} else {
					delete(room, c)
				}
			}
			s.Replicas = &total
			plan, err := w.Plan(s)
			if err != nil {
				rt.Fatal(err)
			}
			sum := int64(0)
			for _, c := range names {
				if plan.Targets[c] < s.Assigned[c] {
					rt.Fatalf("%s loses: %v -> %v", c, s.Assigned, plan.Targets)
				}
				sum += plan.Targets[c]
			}
			if (sum < total) != (plan.Message != "") || sum > total {
				rt.Fatalf("%d of %d placed, and said: %q", sum, total, plan.Message)
			}
			s.Assigned, s.PolicyUnchanged = maps.Clone(plan.Targets), true
		}
	})
}
