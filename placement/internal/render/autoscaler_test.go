// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestBoundReplicas(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason            string
		own, most         int64 // minReplicas is absent for -1
		least             int32
		exact             bool
		wantLeast, wantTo int64
	}{
		"floor":           {"No load has reached the receiving cluster yet.", 2, 30, 20, false, 20, 30},
		"default minimum": {"The API server's default is 1.", -1, 30, 20, false, 20, 30},
		"above":           {"The user's minimum is higher.", 25, 30, 20, false, 25, 30},
		"beyond":          {"A user's maximum is a limit of cost: the move waits, and says why.", 2, 10, 20, false, 10, 10},
		"exact":           {"The leaving cluster must neither keep nor get back what is replaced.", 2, 30, 5, true, 5, 5},
		"exact, less":     {"A step goes below the user's minimum: the other replicas run elsewhere.", 8, 30, 5, true, 5, 5},
		"exact, beyond":   {"A user has lowered the maximum during the move.", 2, 4, 5, true, 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := map[string]any{"maxReplicas": tc.most}
			if tc.own >= 0 {
				spec["minReplicas"] = tc.own
			}
			o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			if err := BoundReplicas(o, tc.least, tc.exact); err != nil {
				t.Fatal(err)
			}
			if spec["minReplicas"] != tc.wantLeast || spec["maxReplicas"] != tc.wantTo {
				t.Errorf("%s\nBoundReplicas: got %v, want %d to %d", tc.reason, spec, tc.wantLeast, tc.wantTo)
			}
		})
	}
}

func TestScales(t *testing.T) {
	t.Parallel()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}}
	for name, tc := range map[string]struct {
		kind   schema.GroupKind
		object string
		want   bool
	}{
		"target":     {schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web", true},
		"other name": {schema.GroupKind{Group: "apps", Kind: "Deployment"}, "db", false},
		"other kind": {schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "web", false},
	} {
		if got := Scales(o, tc.kind, tc.object); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
