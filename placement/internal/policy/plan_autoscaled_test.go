// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"testing"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// The replicas of an object say nothing about what autoscalers run. A division of so few must not empty a cluster, or
// all that runs there would move.
func TestDivisionKeepsAutoscaled(t *testing.T) {
	t.Parallel()
	all := map[string]bool{"west": true, "south": true, "north": true}
	drained := accepted("south", nil)
	drained.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainMove}
	for name, tc := range map[string]struct {
		reason     string
		replicas   int64
		assigned   map[string]int64
		autoscaled map[string]bool
		south      Cluster
		replicasOf v1alpha1.ReplicaPolicy
		room       map[string]int64
		want       map[string]int64
	}{
		"end of a move": {
			"The third replica of west is worth more than the first of south.", 4, map[string]int64{"west": 33, "south": 3, "north": 4}, all,
			accepted("south", nil), v1alpha1.ReplicaPolicy{}, nil, map[string]int64{"west": 4, "south": 1, "north": 1},
		},
		"at rest": {
			"The same division again is the same.", 4, map[string]int64{"west": 4, "south": 1, "north": 1}, all,
			accepted("south", nil), v1alpha1.ReplicaPolicy{}, nil, map[string]int64{"west": 4, "south": 1, "north": 1},
		},
		"no autoscaler": {
			"The hub's own replicas follow the weights.", 4, map[string]int64{"west": 33, "south": 3, "north": 4}, nil,
			accepted("south", nil), v1alpha1.ReplicaPolicy{}, nil, map[string]int64{"west": 4},
		},
		"drained": {
			"An admin's order moves it.", 4, map[string]int64{"west": 4, "south": 1, "north": 1}, all,
			drained, v1alpha1.ReplicaPolicy{}, nil, map[string]int64{"west": 4, "north": 1},
		},
		"no weight": {
			"A user wants none there.", 4, map[string]int64{"west": 4, "south": 1, "north": 1}, all,
			accepted("south", nil), v1alpha1.ReplicaPolicy{Weights: map[string]v1alpha1.Weight{"west": 10, "north": 1}}, nil, map[string]int64{"west": 4, "north": 1},
		},
		"maximum": {
			"A user wants none there.", 4, map[string]int64{"west": 4, "south": 1, "north": 1}, all,
			accepted("south", nil), v1alpha1.ReplicaPolicy{Max: map[string]v1alpha1.Replicas{"south": 0}}, nil, map[string]int64{"west": 4, "north": 1},
		},
		"no room": {
			"Its limit, or a refusal, leaves none.", 4, map[string]int64{"west": 4, "south": 1, "north": 1}, all,
			accepted("south", nil), v1alpha1.ReplicaPolicy{}, map[string]int64{"south": 0}, map[string]int64{"west": 4, "north": 1},
		},
		"scaled to 0": {
			"A user's order at the hub.", 0, map[string]int64{"west": 4, "south": 1, "north": 1}, all,
			accepted("south", nil), v1alpha1.ReplicaPolicy{}, nil, map[string]int64{"west": 0, "south": 0, "north": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.replicasOf.Mode = v1alpha1.ReplicasDivide
			if tc.replicasOf.Weights == nil {
				tc.replicasOf.Weights = map[string]v1alpha1.Weight{"west": 10, "south": 1, "north": 1}
			}
			p := &EffectivePolicy{Source: "Placement shop/p", Spec: v1alpha1.PlacementSpec{
				Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"west", "south", "north"}}, Replicas: tc.replicasOf,
			}}
			plan, err := p.Plan(PlanInput{
				Clusters: []Cluster{accepted("west", nil), tc.south, accepted("north", nil)}, Replicas: &tc.replicas,
				Assigned: tc.assigned, PolicyUnchanged: true, Autoscaled: tc.autoscaled,
				Capacity: func(c string) (*int64, string) {
					if n, ok := tc.room[c]; ok {
						return &n, "its limit"
					}
					return nil, ""
				},
			})
			if err != nil || !maps.Equal(plan.Targets, tc.want) {
				t.Errorf("%s\ngot %v, %v, want %v", tc.reason, plan.Targets, err, tc.want)
			}
		})
	}
}
