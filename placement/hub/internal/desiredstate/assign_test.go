// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// A decision with more targets than an Assignment holds is rejected. The clusters that the object
// leaves count, too.
func TestTooManyTargets(t *testing.T) {
	t.Parallel()
	d := Decision{Replicas: map[string]int64{}, Source: "Placement shop/all"}
	for i := range v1alpha1.MaxTargets {
		d.Replicas[fmt.Sprint(i)] = 0
	}
	a := &v1alpha1.Assignment{}
	a.Spec.Targets = []v1alpha1.Target{{Cluster: "0"}}
	if mistake := tooManyTargets(a, d); mistake != nil {
		t.Errorf("tooManyTargets: got %v for %d clusters, want none", mistake, v1alpha1.MaxTargets)
	}
	a.Spec.Targets = append(a.Spec.Targets, v1alpha1.Target{Cluster: "leaving"})
	mistake := tooManyTargets(a, d)
	if mistake == nil || mistake.Reason != v1alpha1.ReasonTooManyTargets || !strings.Contains(mistake.Error(), "Placement shop/all: spec.clusters: 501") {
		t.Errorf("tooManyTargets: got %v, want an error that counts 501", mistake)
	}
}

// An object that has lost its policy stays where it is if the next policy would remove it there, or
// cannot place it. One that is nowhere follows the next policy, which reports what is missing.
func TestKeepsPlace(t *testing.T) {
	t.Parallel()
	in := func(clusters ...string) map[string]int64 {
		replicas := map[string]int64{}
		for _, name := range clusters {
			replicas[name] = 0
		}
		return replicas
	}
	for name, tc := range map[string]struct {
		reason       string
		before, next Decision
		fallsBack    bool
		want         bool
	}{
		"same":            {"The next policy places it there, too.", Decision{Replicas: in("east")}, Decision{Replicas: in("east", "west")}, true, false},
		"moves":           {"The next policy would remove it.", Decision{Replicas: in("east")}, Decision{Replicas: in("west")}, true, true},
		"short":           {"The next policy has no room.", Decision{Replicas: in("east")}, Decision{Replicas: in("east"), Shortfall: "no room"}, true, true},
		"nowhere":         {"There is nothing to keep, and the next policy reports what is missing.", Decision{}, Decision{Replicas: in(), Shortfall: "no room"}, true, false},
		"annotation":      {"The annotation alone would remove it.", Decision{Replicas: in("east")}, Decision{Replicas: in(), AnnotationPolicyLost: true}, false, true},
		"a policy's edit": {"A user moves it by an edit of the same policy.", Decision{Replicas: in("east")}, Decision{Replicas: in("west")}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := keepsPlace(tc.before, tc.next, tc.fallsBack); got != tc.want {
				t.Errorf("%s\nkeepsPlace: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// An object may have its volume claim in each cluster that it was sent to, until the cluster reports
// that it refuses the object.
func TestVolumeClaims(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		state   v1alpha1.TargetState
		reports map[string]scope.WorkReport
		want    int
	}{
		"not in the cache": {"The Work was just created.", v1alpha1.TargetActive, nil, 1},
		"not reported":     {"The cluster may have created the claim.", v1alpha1.TargetActive, map[string]scope.WorkReport{"east": {}}, 1},
		"made":             {"The cluster has the claim.", v1alpha1.TargetActive, map[string]scope.WorkReport{"east": {UIDs: []types.UID{"x"}}}, 1},
		"leaving":          {"A draining cluster still has the claim.", v1alpha1.TargetDraining, map[string]scope.WorkReport{"east": {UIDs: []types.UID{"x"}}}, 1},
		"about to":         {"The first report may precede the creation.", v1alpha1.TargetActive, map[string]scope.WorkReport{"east": {UIDs: []types.UID{""}}}, 1},
		"refused":          {"The cluster has never created the claim.", v1alpha1.TargetActive, map[string]scope.WorkReport{"east": {UIDs: []types.UID{""}, RefusalReason: "Refused"}}, 0},
		"refuses a change": {"The cluster has the claim, and refuses a change of it.", v1alpha1.TargetActive, map[string]scope.WorkReport{"east": {UIDs: []types.UID{"x"}, RefusalReason: "Invalid"}}, 1},
		"pending":          {"The object was not sent yet.", v1alpha1.TargetPending, nil, 0},
		"removed":          {"A user has ordered the removal.", v1alpha1.TargetRemoving, map[string]scope.WorkReport{"east": {UIDs: []types.UID{"x"}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scope.Scope{
				Key:    kinds.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Name: "data"},
				Object: &unstructured.Unstructured{}, Reports: tc.reports,
			}
			a := &v1alpha1.Assignment{}
			a.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: tc.state}}
			if got := volumeClaims(s, a); len(got) != tc.want {
				t.Errorf("%s\nvolumeClaims: got %v, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
