// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		gk     schema.GroupKind
		status map[string]any
		want   v1alpha1.ReplicaCounts
	}{
		"Deployment": {
			reason: "the usual fields", gk: deploymentKind,
			status: map[string]any{"replicas": int64(5), "readyReplicas": int64(4), "availableReplicas": int64(3)},
			want:   v1alpha1.ReplicaCounts{Total: 5, Ready: 4, Available: 3},
		},
		"DaemonSet": {
			reason: "Pods on nodes", gk: daemonSetKind,
			status: map[string]any{"currentNumberScheduled": int64(3), "numberReady": int64(2), "numberAvailable": int64(1)},
			want:   v1alpha1.ReplicaCounts{Total: 3, Ready: 2, Available: 1},
		},
		"Job": {
			reason: "what runs", gk: jobKind, status: map[string]any{"active": int64(3), "ready": int64(2), "succeeded": int64(9)},
			want: v1alpha1.ReplicaCounts{Total: 3, Ready: 2, Available: 2},
		},
		"Custom": {
			reason: "a kind of an operator, from a decoder of floats", gk: schema.GroupKind{Group: "example.com", Kind: "Database"},
			status: map[string]any{"replicas": float64(2), "readyReplicas": "two"}, want: v1alpha1.ReplicaCounts{Total: 2},
		},
		"None":    {reason: "a ConfigMap has no replicas", gk: schema.GroupKind{Kind: "ConfigMap"}},
		"Rubbish": {reason: "counts stay counts", gk: replicaSetKind, status: map[string]any{"replicas": int64(-4), "readyReplicas": int64(math.MaxInt64)}, want: v1alpha1.ReplicaCounts{Ready: math.MaxInt32}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, ReplicaCounts(tc.gk, tc.status)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMaxUnavailable(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		strategy map[string]any
		desired  int64
		want     int64
		err      string
	}{
		"Default":  {reason: "25%, rounded down", desired: 7, want: 1},
		"Few":      {reason: "rounded down to none, as a surge of one helps", desired: 3},
		"Recreate": {reason: "the controller counts none", strategy: map[string]any{"type": "Recreate"}, desired: 8},
		"Number":   {reason: "at most all", strategy: map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": int64(9)}}, desired: 4, want: 4},
		"BothZero": {reason: "one, or nothing could be replaced", strategy: map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": "0%", "maxSurge": int64(0)}}, desired: 4, want: 1},
		"Nothing":  {reason: "of none, none is missing", desired: 0},
		"Rubbish":  {reason: "the field is named", strategy: map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": "some"}}, desired: 4, err: "spec.strategy.rollingUpdate.maxUnavailable"},
		"Surge":    {reason: "this one, too", strategy: map[string]any{"rollingUpdate": map[string]any{"maxSurge": "some"}}, desired: 4, err: "spec.strategy.rollingUpdate.maxSurge"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			if tc.strategy != nil {
				object.Object["spec"] = map[string]any{"strategy": tc.strategy}
			}
			got, err := maxUnavailable(object, tc.desired)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%s: got %d, %v, want %d", tc.reason, got, err, tc.want)
			}
		})
	}
	broken := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"strategy": "fast"}}}
	if _, err := maxUnavailable(broken, 3); err == nil || !strings.Contains(err.Error(), "spec.strategy") {
		t.Errorf("got error %v, want one that names spec.strategy", err)
	}
}

func TestManyClustersAreCounted(t *testing.T) {
	t.Parallel()
	in := &aggregation{}
	for i := range 12 {
		in.reports = append(in.reports, Report{Cluster: fmt.Sprintf("c%02d", i), Reachable: true})
	}
	if got := in.clusterNames(); !strings.HasSuffix(got, "c09 and 2 more") {
		t.Errorf("got %q, want ten names and a number", got)
	}
	in.reports = in.reports[:10]
	if got := in.clusterNames(); !strings.HasSuffix(got, "c08, c09") {
		t.Errorf("got %q, want all ten", got)
	}
}

func TestAddSaturating(t *testing.T) {
	t.Parallel()
	if got := addSaturating(math.MaxInt64, 3); got != math.MaxInt64 {
		t.Errorf("got %d: two networks of 2^63 addresses have a negative number of them", got)
	}
	n, err := numberField(map[string]any{"capacity": float64(math.MaxInt64)}, "capacity")
	if err != nil || n != math.MaxInt64 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, rubbish := range []any{1.5, math.Inf(-1), true} {
		if n, err := numberField(map[string]any{"x": rubbish}, "x"); err == nil {
			t.Errorf("%v is %d", rubbish, n)
		}
	}
}

// observedGeneration is never ahead of the object, never falls while the object's does
// not, and is the object's only when all clusters have seen it.
func TestObservedGeneration(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		generation := rapid.Int64Range(1, 5).Draw(t, "generation")
		was := rapid.Int64Range(0, generation).Draw(t, "was")
		object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"observedGeneration": was}}}
		object.SetGeneration(generation)
		rows := make([]Report, rapid.IntRange(0, 4).Draw(t, "rows"))
		all := true
		for i := range rows {
			rows[i].ObservedGeneration = rapid.Int64Range(0, 6).Draw(t, "observed")
			all = all && rows[i].ObservedGeneration >= generation
		}
		got := observedGeneration(object, rows)
		if got < was || got > generation || all && got != generation || !all && was < generation && got == generation {
			t.Fatalf("observed %d of generation %d, was %d, rows %+v", got, generation, was, rows)
		}
	})
}

// Sums of counts that the API server takes are counts that it takes.
func TestSumsAreConsistent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := make([]Report, rapid.IntRange(0, 5).Draw(t, "rows"))
		for i := range rows {
			total := rapid.Int64Range(0, 9).Draw(t, "total")
			ready := rapid.Int64Range(0, total).Draw(t, "ready")
			rows[i] = Report{Cluster: fmt.Sprint(i), ObservedGeneration: rapid.Int64Range(0, 2).Draw(t, "observed"), Status: map[string]any{
				"replicas": total, "readyReplicas": ready, "availableReplicas": rapid.Int64Range(0, ready).Draw(t, "available"),
				"updatedReplicas": rapid.Int64Range(0, total).Draw(t, "updated"),
			}}
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
		object.SetGeneration(2)
		sum, err := SumStatuses(object, rows, noon())
		if err != nil {
			t.Fatal(err)
		}
		total, ready, available := numberOrZero(sum, "replicas"), numberOrZero(sum, "readyReplicas"), numberOrZero(sum, "availableReplicas")
		if updated := numberOrZero(sum, "updatedReplicas"); updated > total || ready > total || available > ready {
			t.Fatalf("the API server refuses %v", sum)
		}
	})
}
