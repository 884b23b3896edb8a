// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestReplicaBounds(t *testing.T) {
	t.Parallel()
	target := func(cluster string, state v1alpha1.TargetState, desired int32, requested *int32) v1alpha1.Target {
		return v1alpha1.Target{Cluster: v1alpha1.ClusterName(cluster), State: state, Replicas: &desired, RequestedReplicas: requested}
	}
	moving := []v1alpha1.Target{
		target("east", v1alpha1.TargetDraining, 0, new(int32(15))), target("west", v1alpha1.TargetActive, 20, new(int32(5))),
		target("north", v1alpha1.TargetPending, 20, new(int32(5))), target("south", v1alpha1.TargetDraining, 0, new(int32(0))),
		target("gone", v1alpha1.TargetRemoving, 0, new(int32(5))), target("whole", v1alpha1.TargetActive, 7, nil),
		{Cluster: "kept", State: v1alpha1.TargetActive, Replicas: new(int32(5)), AutoscaledReplicas: new(int32(5))},
	}
	for name, tc := range map[string]struct {
		reason     string
		autoscaled int32
		kind, name string
		want       map[string]ReplicaBounds
	}{
		"move": {
			"A receiver keeps what it gets, and a leaving cluster what is left of it. At 0 replicas Kubernetes ignores an autoscaler. " +
				"A cluster that keeps the whole object scales as before.", 20, "Deployment", "web",
			map[string]ReplicaBounds{"east": {15, true}, "west": {5, false}, "whole": {7, false}},
		},
		"at rest":      {"Each cluster's autoscaler decides.", 0, "Deployment", "web", map[string]ReplicaBounds{}},
		"other target": {"The autoscaler is for another object.", 20, "Deployment", "db", map[string]ReplicaBounds{}},
		"other kind":   {"The autoscaler is for another object.", 20, "StatefulSet", "web", map[string]ReplicaBounds{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &unstructured.Unstructured{Object: map[string]any{"kind": "HorizontalPodAutoscaler", "spec": map[string]any{
				"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
			}}}
			a := v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{
				Object: v1alpha1.ObjectReference{Group: "apps", Kind: tc.kind, Name: tc.name}, Targets: moving,
				Decision: v1alpha1.Decision{AutoscaledReplicas: tc.autoscaled},
			}}
			if diff := cmp.Diff(tc.want, replicaBounds(o, []v1alpha1.Assignment{a})); diff != "" {
				t.Errorf("%s\nreplicaBounds: -want +got\n%s", tc.reason, diff)
			}
		})
	}
	if got := replicaBounds(&unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}, nil); got != nil {
		t.Errorf("replicaBounds of a ConfigMap: got %v, want none", got)
	}
}
