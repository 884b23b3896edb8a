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
	drainAtLimit := func(s *v1alpha1.ClusterSpec) {
		drain(s)
		s.Properties = map[string]v1alpha1.PropertyValue{"full": "true"}
	}
	cordon := func(s *v1alpha1.ClusterSpec) { s.Unschedulable = true }
	notAccepted := func(s *v1alpha1.ClusterSpec) { s.Accepted = false }
	type m = map[string]int64
	for name, tc := range map[string]struct {
		object         Object
		annotation     string
		replicas       int64 // -1 for a kind without replicas
		assigned       m
		unchanged      bool // the effective policy
		room           m
		change         map[string]func(*v1alpha1.ClusterSpec)
		reach          map[string]Reachability
		deleting       string // a Cluster
		byLabels       bool   // the policy selects clusters by labels instead of names
		volumes        map[string]string
		want           m
		wantMessage    string // prefix
		wantPlanReason string // of the plan, or of its error
		reason         string
	}{
		"one":             {annotation: "east", replicas: 3, want: m{"east": 3}},
		"no cluster":      {annotation: "", replicas: 3, assigned: m{"east": 3}, want: m{}},
		"divided":         {annotation: "east,west", replicas: 5, want: m{"east": 3, "west": 2}},
		"weights":         {annotation: "east=3,west=1", replicas: 8, want: m{"east": 6, "west": 2}},
		"too few for all": {annotation: "east,north,west", replicas: 2, want: m{"east": 1, "north": 1}, reason: "a cluster without a replica does not get the object"},
		"no replicas, drained": {
			annotation: "east,west", replicas: 0, assigned: m{"east": 0}, unchanged: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 0}, reason: "a drain also moves an object without replicas",
		},
		"no replicas":  {annotation: "east,west", replicas: 0, want: m{"east": 0}, reason: "an object without replicas still gets a cluster"},
		"grows":        {annotation: "east,west", replicas: 6, assigned: m{"east": 5}, unchanged: true, want: m{"east": 5, "west": 1}, reason: "a cluster keeps the replicas that it has"},
		"new division": {annotation: "east,west", replicas: 6, assigned: m{"east": 6}, want: m{"east": 3, "west": 3}, reason: "a changed policy divides all replicas again"},
		"spills over": {
			annotation: "east,west", replicas: 8, assigned: m{"east": 3, "west": 3}, unchanged: true, room: m{"east": 3},
			want: m{"east": 3, "west": 5},
		},
		"nothing fits": {
			annotation: "east,west", replicas: 8, assigned: m{"east": 3, "west": 3}, unchanged: true, room: m{"east": 3, "west": 3},
			want: m{"east": 3, "west": 3}, wantMessage: "2 of 8 replicas have no room: east has room for 3",
		},
		"move into a full cluster": {
			annotation: "west", replicas: 3, assigned: m{"east": 3}, room: m{"west": 1},
			want: m{"west": 1, "east": 2}, wantMessage: "2 of 3", reason: "replicas without a replacement stay",
		},
		"drained": {
			annotation: "east,west", replicas: 4, assigned: m{"east": 2, "west": 2}, unchanged: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 4},
		},
		"drained without a replacement": {
			annotation: "east", replicas: 4, assigned: m{"east": 4}, unchanged: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"east": 4}, wantMessage: "4 of 4 replicas have no room",
		},
		"unschedulable keeps": {
			annotation: "east,west", replicas: 6, assigned: m{"east": 2, "west": 2}, unchanged: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": cordon}, want: m{"east": 2, "west": 4},
		},
		"single":             {object: stateful, annotation: "east,west", replicas: 3, want: m{"east": 0}},
		"single stays":       {object: stateful, annotation: "east,west", replicas: 3, assigned: m{"west": 3}, want: m{"west": 0}},
		"single, first full": {object: stateful, annotation: "east,west", replicas: 3, room: m{"east": 2}, want: m{"west": 0}},
		"single, all full":   {object: stateful, annotation: "east", replicas: 3, room: m{"east": 2}, want: m{}, wantMessage: "no cluster takes it: east has room for 2"},
		"duplicate":          {object: daemons, annotation: "east,west", replicas: -1, want: m{"east": 0, "west": 0}},
		"never reported": {
			annotation: "east,west", replicas: 6, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 6},
			reason: "a cluster without an agent runs nothing",
		},
		"only one, never reported": {
			annotation: "east", replicas: 3, reach: map[string]Reachability{"east": NeverReported}, want: m{},
			wantMessage: "3 of 3 replicas have no room: east has not reported yet", wantPlanReason: v1alpha1.ReasonWaitingForCluster,
			reason: "the message names the cluster that the object waits for",
		},
		"moved to one that never reported": {
			annotation: "east", replicas: 3, assigned: m{"west": 3}, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 3},
			wantMessage: "3 of 3 replicas have no room: east has not reported yet", wantPlanReason: v1alpha1.ReasonWaitingForCluster,
			reason: "a replica does not leave for a cluster that cannot take it",
		},
		"no replicas, moved to one that never reported": {
			annotation: "east", replicas: 0, assigned: m{"west": 0}, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 0},
			wantMessage: "no cluster takes it", wantPlanReason: v1alpha1.ReasonWaitingForCluster,
			reason: "an object without replicas is not removed either",
		},
		"re-created Cluster": {
			annotation: "east,west", replicas: 6, assigned: m{"east": 3, "west": 3}, unchanged: true,
			reach: map[string]Reachability{"east": NeverReported}, want: m{"east": 3, "west": 3}, reason: "replicas stay in a Cluster that was created again",
		},
		"not reporting, grows": {
			annotation: "east,north,west", replicas: 9, assigned: m{"east": 2, "north": 2, "west": 2}, unchanged: true,
			reach: map[string]Reachability{"north": NotReporting}, want: m{"east": 4, "north": 2, "west": 3}, reason: "growth goes elsewhere",
		},
		"single, not reporting": {
			object: stateful, annotation: "east,west", replicas: 3, assigned: m{"east": 3}, reach: map[string]Reachability{"east": NotReporting},
			want: m{"east": 0}, reason: "a StatefulSet does not leave a cluster because that does not report",
		},
		"single, never reported": {
			object: stateful, annotation: "east,west", replicas: 3, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 0},
			reason: "the object starts in the first cluster that can take it",
		},
		"duplicate, one never reported": {
			object: daemons, annotation: "east,west", replicas: -1, reach: map[string]Reachability{"east": NeverReported}, want: m{"west": 0},
			wantMessage: "some clusters do not have it yet: east has not reported yet", wantPlanReason: v1alpha1.ReasonWaitingForCluster,
			reason: "each cluster must have the object, and one does not have it",
		},
		"drain at its limit": {
			annotation: "east,west", replicas: 4, assigned: m{"east": 2, "west": 2}, unchanged: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drainAtLimit}, want: m{"east": 2, "west": 2},
			reason: "the object leaves when another one has left",
		},
		"volumes stay": {
			annotation: "west", replicas: 3, assigned: m{"east": 3}, volumes: map[string]string{"east": "data"}, want: m{"east": 3},
			wantPlanReason: v1alpha1.ReasonVolumesRefused, reason: "the object's data is in east",
		},
		"volumes and a drain": {
			annotation: "east,west", replicas: 4, assigned: m{"east": 4}, unchanged: true, volumes: map[string]string{"east": "data"},
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"east": 4}, reason: "a drain does not move data either",
		},
		"volumes without replicas": {
			annotation: "east,west", replicas: 1, assigned: m{"east": 1, "west": 1}, volumes: map[string]string{"east": "data", "west": "data"},
			want: m{"east": 1, "west": 0}, reason: "a cluster with a claim keeps the object, also without replicas",
		},
		"volumes and new weights": {
			annotation: "east=0,west=1", replicas: 3, assigned: m{"east": 3}, volumes: map[string]string{"east": "data"}, want: m{"east": 3},
			wantPlanReason: v1alpha1.ReasonVolumesRefused, reason: "replicas in west would start without their data",
		},
		"volumes in both and new weights": {
			annotation: "east=1,west=3", replicas: 4, assigned: m{"east": 2, "west": 2}, volumes: map[string]string{"east": "data", "west": "data"},
			want: m{"east": 1, "west": 3}, reason: "each cluster has its data",
		},
		"volumes, removed": {
			annotation: "", replicas: 1, assigned: m{"east": 1}, volumes: map[string]string{"east": "data"}, want: m{},
			reason: "a user ordered the removal",
		},
		"deleted in the foreground": {
			annotation: "east,west", replicas: 4, assigned: m{"east": 2, "west": 2}, unchanged: true, deleting: "east",
			want: m{"east": 2, "west": 2}, reason: "deleting a Cluster object is no order to remove what the cluster has",
		},
		"deleted, duplicate": {
			object: daemons, annotation: "east,west", replicas: -1, assigned: m{"east": 0, "west": 0}, deleting: "east", byLabels: true,
			want: m{"east": 0, "west": 0}, reason: "the same holds for a kind without replicas",
		},
		"deleted, nothing new": {
			object: daemons, annotation: "east,west", replicas: -1, assigned: m{"west": 0}, deleting: "east",
			want: m{"west": 0}, wantMessage: "some clusters do not have it yet: east is being deleted", wantPlanReason: v1alpha1.ReasonWaitingForCluster,
			reason: "a Cluster that is being deleted takes nothing new",
		},
		"not accepted any more": {
			object: daemons, annotation: "east,west", replicas: -1, assigned: m{"east": 0, "west": 0}, byLabels: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": notAccepted}, want: m{"east": 0, "west": 0},
			reason: "withdrawing the acceptance is no order to remove",
		},
		"not accepted any more, grows": {
			annotation: "east,west", replicas: 6, assigned: m{"east": 2, "west": 2}, unchanged: true, byLabels: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": notAccepted}, want: m{"east": 2, "west": 4}, reason: "growth goes elsewhere",
		},
		"not accepted yet": {
			object: daemons, annotation: "east,west", replicas: -1, byLabels: true,
			change: map[string]func(*v1alpha1.ClusterSpec){"east": notAccepted}, want: m{"west": 0}, reason: "a selector skips a cluster that is not accepted, without a message",
		},
		"named and not accepted": {
			annotation: "east", replicas: 2, change: map[string]func(*v1alpha1.ClusterSpec){"east": notAccepted}, want: m{},
			wantMessage: "2 of 2 replicas have no room: east is not accepted", wantPlanReason: v1alpha1.ReasonWaitingForCluster,
		},
		"drained while deleted": {
			annotation: "east,west", replicas: 4, assigned: m{"east": 2, "west": 2}, unchanged: true, deleting: "east",
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 4}, reason: "the drain is the order",
		},
		"duplicate, one drains": {
			object: daemons, annotation: "east,west", replicas: -1, assigned: m{"east": 0, "west": 0},
			change: map[string]func(*v1alpha1.ClusterSpec){"east": drain}, want: m{"west": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := tc.object
			if o.Name == "" {
				o = object(nil)
			}
			in := PlanInput{Assigned: tc.assigned, PolicyUnchanged: tc.unchanged, Capacity: func(c string) (*int64, string) {
				if n, ok := tc.room[c]; ok {
					return &n, "limits.pods"
				}
				return nil, ""
			}}
			if tc.replicas >= 0 {
				in.Replicas = &tc.replicas
			}
			for _, c := range []string{"east", "north", "west"} {
				cluster := accepted(c, tc.change[c])
				cluster.Reachability, cluster.DrainLimitReached = tc.reach[c], cluster.Spec.Properties["full"] != ""
				cluster.Deleting = c == tc.deleting
				if strings.Contains(tc.annotation, c) {
					cluster.Labels["chosen"] = "true"
				}
				in.Clusters = append(in.Clusters, cluster)
			}
			in.VolumeClaims = tc.volumes
			policy := annotated(t, o, tc.annotation)
			if tc.byLabels {
				policy.Source, policy.NamesClusters = "Placement shop/p", false
				policy.Spec.Clusters = v1alpha1.ClusterChoice{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"chosen": "true"}}}
			}
			plan, err := policy.Plan(in)
			if mistake, ok := errors.AsType[*Error](err); ok && mistake.Reason == tc.wantPlanReason {
				return
			}
			if tc.wantPlanReason != "" && plan.Reason != tc.wantPlanReason {
				t.Errorf("%s: reason %q, want %q", tc.reason, plan.Reason, tc.wantPlanReason)
			}
			if diff := cmp.Diff(tc.want, plan.Targets); err != nil || diff != "" {
				t.Errorf("%s: %v, -want +got\n%s", tc.reason, err, diff)
			}
			if !strings.HasPrefix(plan.Message, tc.wantMessage) || (tc.wantMessage == "") != (plan.Message == "") {
				t.Errorf("%s: message %q, want the prefix %q", tc.reason, plan.Message, tc.wantMessage)
			}
		})
	}
}

func TestPlanNamesUnknownCluster(t *testing.T) {
	t.Parallel()
	_, err := annotated(t, object(nil), "east,nope").Plan(PlanInput{Clusters: []Cluster{accepted("east", nil)}})
	if err == nil || !strings.Contains(err.Error(), `annotations[placement.patchbay.io/clusters]: must be a Cluster of this hub: there is no Cluster "nope"`) {
		t.Errorf("got %v", err)
	}
}

// Replicas that cannot be divided are a mistake in the policy or in the object, and are not placed in part.
func TestPlanRejectsReplicas(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		replicas int64
		change   func(*v1alpha1.ReplicaPolicy)
		want     string
	}{
		"too many": {"No cluster runs so many.", 1_000_001, nil, "replicas 1000001: must be 0 to 1000000"},
		"bounds": {"No number of replicas satisfies both bounds.", 3, func(r *v1alpha1.ReplicaPolicy) {
			r.Min, r.Max = map[string]v1alpha1.Replicas{"east": 2}, map[string]v1alpha1.Replicas{"east": 1}
		}, `cluster "east": max 1: must be at least its min of 2`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := annotated(t, object(nil), "east")
			if tc.change != nil {
				tc.change(&p.Spec.Replicas)
			}
			_, err := p.Plan(PlanInput{
				Clusters: []Cluster{accepted("east", nil)}, Replicas: &tc.replicas,
				Capacity: func(string) (*int64, string) { return nil, "" },
			})
			if e, ok := errors.AsType[*Error](err); !ok || e.Reason != v1alpha1.ReasonInvalidReplicas || !strings.Contains(e.Message, tc.want) {
				t.Errorf("%s\ngot %v, want the reason %s and the message %q", tc.reason, err, v1alpha1.ReasonInvalidReplicas, tc.want)
			}
		})
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

// While the effective policy is the same, growth takes no replica from any cluster, whatever the room of
// each. The plan has a message unless all replicas are placed.
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
				rt.Fatalf("%d of %d placed, message %q", sum, total, plan.Message)
			}
			s.Assigned, s.PolicyUnchanged = maps.Clone(plan.Targets), true
		}
	})
}
