// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// refusedAt is when the tests of refusals decide.
var refusedAt = time.Unix(10_000, 0).UTC()

// refusing is what one cluster has of a Deployment with 10 replicas.
type refusing struct {
	desired, requested, available, refused int32
}

// refusedScope is a Scope of a Deployment in east and west.
func refusedScope(t *testing.T, annotation string, clusters map[string]refusing, refusals ...v1alpha1.Refusal) (*scope.Scope, scope.Resolution) {
	t.Helper()
	gk := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	s := &scope.Scope{
		Key: kinds.Key{GroupKind: gk, Namespace: "shop", Name: "web"}, Now: refusedAt, Assignment: &v1alpha1.Assignment{},
		Object:   &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(10)}}},
		Clusters: map[string]*v1alpha1.Cluster{}, Works: map[string]*v1alpha1.Work{}, Reports: map[string]scope.WorkReport{},
	}
	s.Object.SetGroupVersionKind(gk.WithVersion("v1"))
	s.Object.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: annotation})
	s.Assignment.UID = "stored"
	for _, name := range []string{"east", "west"} {
		s.Clusters[name] = &v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true},
			Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}},
		}
		c, ok := clusters[name]
		if !ok {
			continue
		}
		s.Assignment.Spec.Targets = append(s.Assignment.Spec.Targets, v1alpha1.Target{
			Cluster: v1alpha1.ClusterName(name), State: v1alpha1.TargetActive, Replicas: &c.desired, RequestedReplicas: &c.requested,
		})
		manifest := s.Object.DeepCopy()
		if err := unstructured.SetNestedField(manifest.Object, int64(c.requested), "spec", "replicas"); err != nil {
			t.Fatal(err)
		}
		raw, err := manifest.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		s.Works[name] = &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Manifests: []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: raw}}}}}
		r := scope.WorkReport{Applied: true, Current: true, Read: true, Replicas: &c.requested, Counts: v1alpha1.ReplicaCounts{Total: c.requested, Available: c.available}}
		if c.refused > 0 {
			r.Refused = &v1alpha1.RefusedReplicas{Replicas: c.refused, Reason: "Unschedulable", Message: "Insufficient cpu"}
		}
		s.Reports[name] = r
	}
	p, err := policy.Resolve(policy.Object{Kind: gk, Namespace: "shop", Name: "web", Annotations: s.Object.GetAnnotations()}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Assignment.Spec.Decision = v1alpha1.Decision{Digest: p.Digest(), Source: p.Source, Refusals: refusals}
	return s, scope.Resolution{Policy: p}
}

func refusal(replicas int32, retry time.Duration, count int32) v1alpha1.Refusal {
	return v1alpha1.Refusal{Cluster: "east", Replicas: replicas, RetryTime: metav1.NewMicroTime(refusedAt.Add(retry)), Count: count}
}

func TestRefusedReplicasGoElsewhere(t *testing.T) {
	t.Parallel()
	both := func(east, west refusing) map[string]refusing { return map[string]refusing{"east": east, "west": west} }
	runs := refusing{5, 5, 5, 0}
	for name, tc := range map[string]struct {
		reason   string
		where    string // default: east,west
		clusters map[string]refusing
		refusals []v1alpha1.Refusal
		want     map[string]int64
		refused  []v1alpha1.Refusal
		message  string
	}{
		"all run": {reason: "Nothing is to do.", clusters: both(runs, runs), want: map[string]int64{"east": 5, "west": 5}},
		"refused": {
			reason: "Exactly those that do not run go elsewhere.", clusters: both(refusing{5, 5, 2, 2}, runs),
			want: map[string]int64{"east": 3, "west": 7}, refused: []v1alpha1.Refusal{refusal(3, 5*time.Minute, 1)},
		},
		"moving": {
			reason: "West starts them, and east still has them.", clusters: both(refusing{3, 5, 3, 2}, refusing{7, 7, 5, 0}), refusals: []v1alpha1.Refusal{refusal(3, time.Minute, 1)},
			want: map[string]int64{"east": 3, "west": 7}, refused: []v1alpha1.Refusal{refusal(3, time.Minute, 1)},
		},
		"started meanwhile": {
			reason: "They run in east before west runs them: east keeps them.", clusters: both(refusing{3, 5, 5, 0}, refusing{7, 7, 5, 0}), refusals: []v1alpha1.Refusal{refusal(3, time.Minute, 1)},
			want: map[string]int64{"east": 5, "west": 5}, refused: []v1alpha1.Refusal{refusal(5, time.Minute, 1)},
		},
		"moved": {
			reason: "Nothing moves back by itself.", clusters: both(refusing{3, 3, 3, 0}, refusing{7, 7, 7, 0}), refusals: []v1alpha1.Refusal{refusal(3, -time.Second, 1)},
			want: map[string]int64{"east": 3, "west": 7}, refused: []v1alpha1.Refusal{refusal(3, -time.Second, 1)},
		},
		"forgotten": {
			reason: "A refusal is forgotten when none has followed.", clusters: both(refusing{3, 3, 3, 0}, refusing{7, 7, 7, 0}), refusals: []v1alpha1.Refusal{refusal(3, -5*time.Minute, 1)},
			want: map[string]int64{"east": 3, "west": 7},
		},
		"all refused": {
			reason: "That it runs nowhere in east is no order to remove it.", clusters: both(refusing{5, 5, 0, 5}, runs),
			want: map[string]int64{"east": 0, "west": 10}, refused: []v1alpha1.Refusal{refusal(0, 5*time.Minute, 1)},
		},
		"all refused before": {
			reason: "Nor is it later.", clusters: both(refusing{0, 0, 0, 0}, refusing{10, 10, 10, 0}), refusals: []v1alpha1.Refusal{refusal(0, -time.Hour, 1)},
			want: map[string]int64{"east": 0, "west": 10}, refused: []v1alpha1.Refusal{refusal(0, -time.Hour, 1)},
		},
		"again": {
			reason: "Each refusal doubles the time.", clusters: both(refusing{5, 5, 4, 1}, runs), refusals: []v1alpha1.Refusal{refusal(3, -time.Second, 3)},
			want: map[string]int64{"east": 4, "west": 6}, refused: []v1alpha1.Refusal{refusal(4, 40*time.Minute, 4)},
		},
		"more": {
			reason: "A node of east has failed.", clusters: both(refusing{3, 3, 1, 2}, refusing{7, 7, 7, 0}), refusals: []v1alpha1.Refusal{refusal(3, time.Minute, 1)},
			want: map[string]int64{"east": 1, "west": 9}, refused: []v1alpha1.Refusal{refusal(1, time.Minute, 1)},
		},
		"both": {
			reason: "They stay where they wait, and the message says why.", clusters: both(refusing{5, 5, 3, 2}, runs),
			refusals: []v1alpha1.Refusal{{Cluster: "west", Replicas: 5, RetryTime: metav1.NewMicroTime(refusedAt.Add(time.Minute)), Count: 1}},
			want:     map[string]int64{"east": 5, "west": 5},
			refused:  []v1alpha1.Refusal{refusal(3, 5*time.Minute, 1), {Cluster: "west", Replicas: 5, RetryTime: metav1.NewMicroTime(refusedAt.Add(time.Minute)), Count: 1}},
			message:  "2 of 10 replicas have no room: east has room for 3 (it does not run more: Unschedulable: Insufficient cpu; it gets no more before 1970-01-01T02:51:40Z)",
		},
		"one cluster": {
			reason: "There is no other one.", where: "east", clusters: map[string]refusing{"east": {10, 10, 8, 2}},
			want: map[string]int64{"east": 10}, refused: []v1alpha1.Refusal{refusal(8, 5*time.Minute, 1)}, message: "2 of 10 replicas have no room: east",
		},
		"whole": {
			reason: "An object that each cluster has whole goes nowhere.", where: "duplicate", clusters: both(refusing{10, 10, 8, 2}, refusing{10, 10, 10, 0}), want: nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			where := tc.where
			if where == "" || where == "duplicate" {
				where = "east,west"
			}
			s, r := refusedScope(t, where, tc.clusters, tc.refusals...)
			if tc.where == "duplicate" {
				r.Policy.Spec.Replicas.Mode = v1alpha1.ReplicasDuplicate
				tc.want = map[string]int64{"east": 10, "west": 10}
			}
			d, err := Assign(s, r, s.Assignment, nil, limits.NewCapacity(func() time.Time { return s.Now }), limits.NewDrains())
			if err != nil || !maps.Equal(d.Replicas, tc.want) {
				t.Fatalf("%s\ngot %v, %v, want %v", tc.reason, d.Replicas, err, tc.want)
			}
			if diff := cmp.Diff(tc.refused, NextAssignment(s, s.Assignment, d).Spec.Decision.Refusals, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s\nrefusals, -want +got:\n%s", tc.reason, diff)
			}
			if !strings.HasPrefix(d.Shortfall, tc.message) || (tc.message == "") != (d.Shortfall == "") {
				t.Errorf("%s\ngot the message %q, want %q", tc.reason, d.Shortfall, tc.message)
			}
		})
	}
}

// A new value divides the replicas anew, once.
func TestRebalance(t *testing.T) {
	t.Parallel()
	s, r := refusedScope(t, "east,west", map[string]refusing{"east": {3, 3, 3, 0}, "west": {7, 7, 7, 0}}, refusal(3, time.Minute, 1))
	expect := func(when string, want map[string]int64) {
		t.Helper()
		d, err := Assign(s, r, s.Assignment, nil, limits.NewCapacity(time.Now), limits.NewDrains())
		if err != nil || !maps.Equal(d.Replicas, want) {
			t.Fatalf("%s: got %v, %v, want %v", when, d.Replicas, err, want)
		}
		s.Assignment = NextAssignment(s, s.Assignment, d)
	}
	expect("before", map[string]int64{"east": 3, "west": 7})
	s.Object.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: "east,west", v1alpha1.RebalanceAnnotation: "1"})
	expect("a new value", map[string]int64{"east": 5, "west": 5})
	if len(s.Assignment.Spec.Decision.Refusals) > 0 {
		t.Error("a user has ordered to try all clusters again, and a refusal is still in force")
	}
	expect("the same value", map[string]int64{"east": 3, "west": 7}) // the targets are still those of before
}

// While a move counts what autoscalers request, the plan for the object's own 2 replicas never frees the room of the 20.
func TestAutoscaledMoveKeepsItsRoom(t *testing.T) {
	t.Parallel()
	s, r := refusedScope(t, "west", map[string]refusing{"east": {0, 15, 15, 0}, "west": {20, 5, 5, 0}})
	r.Policy.Spec.Apply.Yield = []v1alpha1.FieldPath{"spec.replicas"}
	if err := unstructured.SetNestedField(s.Object.Object, int64(2), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	d := &s.Assignment.Spec.Decision
	d.Digest, d.AutoscaledReplicas = r.Policy.Digest(), 20
	d.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	s.Assignment.Spec.Targets[0].State = v1alpha1.TargetDraining
	for name, live := range map[string]int32{"east": 15, "west": 12} { // west's autoscaler runs more than the hub has requested so far
		i := slices.IndexFunc(s.Assignment.Spec.Targets, func(t v1alpha1.Target) bool { return string(t.Cluster) == name })
		s.Assignment.Spec.Targets[i].AutoscaledReplicas = &live
		report := s.Reports[name]
		report.AutoscaledReplicas, report.Counts.Total = &live, live
		s.Reports[name] = report
	}
	c := limits.NewCapacity(func() time.Time { return s.Now })
	s.Clusters["west"].Status.Room = &v1alpha1.Room{Buckets: []v1alpha1.RoomBucket{{Nodes: 1, CPU: resource.MustParse("10"), Memory: resource.MustParse("64Gi"), Pods: 100}}}
	c.Rooms().Observe(s.Clusters["west"])
	c.Restore(s.Key, ReservationOf(s, s.Assignment)) // 8 of 20 do not exist yet, and 2 have room beside them

	decision, err := Assign(s, r, s.Assignment, nil, c, limits.NewDrains())
	if want := map[string]int64{"west": 20}; err != nil || !maps.Equal(decision.Replicas, want) {
		t.Fatalf("got %v, %v, want %v", decision.Replicas, err, want)
	}
	if got := c.Usage("west").Replicas; got != 20 {
		t.Errorf("%d replicas are reserved in west, want 20", got)
	}
	other := s.Key
	other.Name = "other"
	err = c.Reserve(other, func(room limits.RoomFunc) (limits.Reservation, error) {
		if n, _ := room(limits.PerReplica(d.Requests), "west", 0, nil); n == nil || *n != 2 {
			t.Errorf("another object gets room for %d, want 2: the room of the 20 was free in between", ptr.Deref(n, -1))
		}
		return limits.Reservation{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An object waits for the room of those clusters that limit it, and that would take it. Silent clusters have other events.
func TestAwaitedRoom(t *testing.T) {
	t.Parallel()
	cluster := func(name string, reachable policy.Reachability) policy.Cluster {
		return policy.Cluster{Name: name, Spec: &v1alpha1.ClusterSpec{Accepted: true}, Reachability: reachable}
	}
	east, silent := cluster("east", policy.Reachable), cluster("silent", policy.NotReporting)
	cordoned, drained, deleted := cluster("cordoned", policy.Reachable), cluster("drained", policy.Reachable), cluster("deleted", policy.Reachable)
	cordoned.Spec.Unschedulable, drained.Spec.Drain, deleted.Deleting = true, &v1alpha1.Drain{Mode: v1alpha1.DrainMove}, true
	held := silent
	held.LossHeld = "too many clusters are silent"
	for name, tc := range map[string]struct {
		reason   string
		clusters []policy.Cluster
		replicas int64
		assigned map[string]int64
		limited  map[string]int64
		mode     v1alpha1.ReplicaMode
		want     string
	}{
		"fits":   {"All have room.", []policy.Cluster{east}, 4, nil, map[string]int64{"east": 4}, v1alpha1.ReplicasDivide, "0 []"},
		"full":   {"One replica may go to east.", []policy.Cluster{east}, 4, nil, map[string]int64{"east": 3}, v1alpha1.ReplicasDivide, "1 [east]"},
		"whole":  {"All 4 must fit.", []policy.Cluster{east}, 4, nil, map[string]int64{"east": 3}, v1alpha1.ReplicasSingle, "4 [east]"},
		"silent": {"A report of room of east helps.", []policy.Cluster{east, silent}, 4, nil, map[string]int64{"east": 3}, v1alpha1.ReplicasDivide, "1 [east]"},
		"held": {
			"All replicas are placed, and stay with the silent cluster.", []policy.Cluster{east, held}, 4, map[string]int64{"east": 2, "silent": 2},
			map[string]int64{"east": 2}, v1alpha1.ReplicasDivide, "0 []",
		},
		"takes nothing": {
			"Users free these.", []policy.Cluster{cordoned, deleted, drained, east}, 4, map[string]int64{"east": 1},
			map[string]int64{"east": 1, "cordoned": 0, "deleted": 0, "drained": 0}, v1alpha1.ReplicasDivide, "1 [east]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &policy.EffectivePolicy{Source: "Placement shop/p"}
			p.Spec.Replicas.Mode = tc.mode
			for _, c := range tc.clusters {
				p.Spec.Clusters.Names = append(p.Spec.Clusters.Names, v1alpha1.ClusterName(c.Name))
			}
			d, limited := Decision{Policy: p, Replicas: map[string]int64{}}, map[string]bool{}
			in := policy.PlanInput{Clusters: tc.clusters, Replicas: &tc.replicas, Assigned: tc.assigned, PolicyUnchanged: true, Capacity: func(name string) (*int64, string) {
				n, ok := tc.limited[name]
				if limited[name] = ok; ok {
					return &n, "its nodes"
				}
				return nil, ""
			}}
			plan, err := d.plan(in)
			if err != nil {
				t.Fatal(err)
			}
			var room limits.AwaitedRoom
			if plan.LacksRoom {
				room = awaitedRoom(plan, in, limits.Usage{Replicas: 1}, limited)
			}
			if got := fmt.Sprint(room.Replicas, " ", room.Clusters); got != tc.want {
				t.Errorf("%s\ngot %s, want %s: %s", tc.reason, got, tc.want, plan.Message)
			}
		})
	}
}

func TestRoomRetry(t *testing.T) {
	t.Parallel()
	ends := func(cluster string, after time.Duration) v1alpha1.Refusal {
		return v1alpha1.Refusal{Cluster: v1alpha1.ClusterName(cluster), RetryTime: metav1.NewMicroTime(refusedAt.Add(after))}
	}
	for name, tc := range map[string]struct {
		reason   string
		waits    bool
		room     *v1alpha1.Room
		refusals []v1alpha1.Refusal
		want     time.Duration
	}{
		"placed":   {"Nothing is missing.", false, &v1alpha1.Room{}, []v1alpha1.Refusal{ends("east", time.Minute)}, 0},
		"room":     {"Assumptions end without a report.", true, &v1alpha1.Room{}, nil, roomRetryInterval},
		"no room":  {"Nothing is reported.", true, nil, nil, 0},
		"refusals": {"The soonest end counts, not the first by name.", true, nil, []v1alpha1.Refusal{ends("a", time.Hour), ends("b", -time.Hour), ends("c", time.Minute)}, time.Minute},
		"sooner":   {"A refusal ends before the next look for room.", true, &v1alpha1.Room{}, []v1alpha1.Refusal{ends("east", time.Second)}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scope.Scope{Now: refusedAt, Clusters: map[string]*v1alpha1.Cluster{"east": {Status: v1alpha1.ClusterStatus{Room: tc.room}}}}
			d := Decision{Refusals: tc.refusals}
			if tc.waits {
				d.AwaitedRoom.Clusters = []string{"east"}
			}
			if got := roomRetry(s, d); got != tc.want {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
