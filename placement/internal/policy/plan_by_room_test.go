// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestDivideByRoom(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		replicas int64
		room     map[string]int64
		assigned map[string]int64
		weights  map[string]v1alpha1.Weight
		want     map[string]int64
	}{
		"new":         {"Each cluster gets a part like its room.", 8, map[string]int64{"east": 10, "west": 30}, nil, nil, map[string]int64{"east": 2, "west": 6}},
		"full":        {"A cluster without room gets none.", 8, map[string]int64{"east": 0, "west": 30}, nil, nil, map[string]int64{"west": 8}},
		"not known":   {"It counts as the one with the most room.", 8, map[string]int64{"west": 30}, nil, nil, map[string]int64{"east": 4, "west": 4}},
		"grows":       {"Replicas stay, new ones follow the room.", 8, map[string]int64{"east": 30, "west": 6}, map[string]int64{"east": 2, "west": 4}, nil, map[string]int64{"east": 4, "west": 4}},
		"unchanged":   {"Nothing moves when room changes.", 6, map[string]int64{"east": 100, "west": 5}, map[string]int64{"east": 1, "west": 5}, nil, map[string]int64{"east": 1, "west": 5}},
		"annotations": {"Numbers of an annotation are the user's own order.", 8, map[string]int64{"east": 10, "west": 30}, nil, map[string]v1alpha1.Weight{"east": 3, "west": 1}, map[string]int64{"east": 6, "west": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := planByRoom(t, tc.replicas, tc.room, tc.assigned, tc.weights)
			if !maps.Equal(plan.Targets, tc.want) {
				t.Errorf("%s\ngot %v, want %v", tc.reason, plan.Targets, tc.want)
			}
		})
	}
}

// planByRoom plans for east and west. A cluster that has replicas is planned from the same policy.
func planByRoom(t rapid.TB, replicas int64, room, assigned map[string]int64, weights map[string]v1alpha1.Weight) Plan {
	t.Helper()
	p := &EffectivePolicy{Source: "Placement shop/p", Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"east", "west"}},
		Replicas: v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDivide, By: v1alpha1.DivideAvailable, Weights: weights},
	}}
	plan, err := p.Plan(PlanInput{
		Clusters: []Cluster{accepted("east", nil), accepted("west", nil)}, Replicas: &replicas, Assigned: assigned, PolicyUnchanged: assigned != nil,
		Capacity: func(c string) (*int64, string) {
			if n, ok := room[c]; ok {
				return &n, "its nodes"
			}
			return nil, ""
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A plan that has found room for all replicas stays the same, whatever happens to the room: clusters have room for what
// they are assigned.
func TestPlanByRoomIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		free := func(assigned map[string]int64) map[string]int64 {
			room := map[string]int64{}
			for _, name := range []string{"east", "west"} {
				if rapid.Bool().Draw(t, "reports") {
					room[name] = assigned[name] + rapid.Int64Range(0, 20).Draw(t, name)
				}
			}
			return room
		}
		replicas := rapid.Int64Range(1, 30).Draw(t, "replicas")
		first := planByRoom(t, replicas, free(nil), nil, nil)
		if first.Message != "" {
			return
		}
		for range 3 {
			if next := planByRoom(t, replicas, free(first.Targets), first.Targets, nil); !maps.Equal(next.Targets, first.Targets) {
				t.Fatalf("%d replicas were %v, and are %v", replicas, first.Targets, next.Targets)
			}
		}
	})
}
