// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"maps"
	"testing"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestReservationOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		targets []v1alpha1.Target
		want    map[string]int64
	}{
		"divided": {
			"Replicas that have not left use room.",
			[]v1alpha1.Target{
				{Cluster: "east", State: v1alpha1.TargetDraining, Replicas: new(int32(0)), RequestedReplicas: new(int32(2))},
				{Cluster: "west", State: v1alpha1.TargetActive, Replicas: new(int32(3)), RequestedReplicas: new(int32(1))},
			},
			map[string]int64{"east": 2, "west": 3},
		},
		"whole": {
			"All Pods of a StatefulSet run until it is removed.",
			[]v1alpha1.Target{
				{Cluster: "east", State: v1alpha1.TargetRemoving, Replicas: new(int32(0))},
				{Cluster: "west", State: v1alpha1.TargetPending, Replicas: new(int32(3))},
			},
			map[string]int64{"east": 3, "west": 3},
		},
		"without replicas": {"A ConfigMap has none.", []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetDraining}}, map[string]int64{"east": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ReservationOf(&v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: tc.targets}}).Replicas
			if !maps.Equal(got, tc.want) {
				t.Errorf("%s\ngot %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
