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
			reason: "a Deployment has the usual fields", gk: schema.ParseGroupKind(deploymentKind),
			status: map[string]any{"replicas": int64(5), "readyReplicas": int64(4), "availableReplicas": int64(3)},
			want:   v1alpha1.ReplicaCounts{Total: 5, Ready: 4, Available: 3},
		},
		"DaemonSet": {
			reason: "a DaemonSet counts Pods on nodes", gk: schema.ParseGroupKind(daemonSetKind),
			status: map[string]any{"currentNumberScheduled": int64(3), "numberReady": int64(2), "numberAvailable": int64(1)},
			want:   v1alpha1.ReplicaCounts{Total: 3, Ready: 2, Available: 1},
		},
		"Job": {
			reason: "a Job counts running Pods", gk: schema.ParseGroupKind(jobKind), status: map[string]any{"active": int64(3), "ready": int64(2), "succeeded": int64(9)},
			want: v1alpha1.ReplicaCounts{Total: 3, Ready: 2, Available: 2},
		},
		"Custom": {
			reason: "a decoder may return floats for a custom kind", gk: schema.GroupKind{Group: "example.com", Kind: "Database"},
			status: map[string]any{"replicas": float64(2), "readyReplicas": "two"}, want: v1alpha1.ReplicaCounts{Total: 2},
		},
		"None":    {reason: "a ConfigMap has no replicas", gk: schema.GroupKind{Kind: "ConfigMap"}},
		"Invalid": {reason: "counts stay within their range", gk: schema.ParseGroupKind(replicaSetKind), status: map[string]any{"replicas": int64(-4), "readyReplicas": int64(math.MaxInt64)}, want: v1alpha1.ReplicaCounts{Ready: math.MaxInt32}},
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
		"Default":  {reason: "the default is 25%, rounded down", desired: 7, want: 1},
		"Few":      {reason: "it may be rounded down to 0, because the surge is at least 1", desired: 3},
		"Recreate": {reason: "the controller does not use it with Recreate", strategy: map[string]any{"type": "Recreate"}, desired: 8},
		"Number":   {reason: "it is at most the number of replicas", strategy: map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": int64(9)}}, desired: 4, want: 4},
		"BothZero": {reason: "with both 0, no Pod could be replaced", strategy: map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": "0%", "maxSurge": int64(0)}}, desired: 4, want: 1},
		"Nothing":  {reason: "without replicas none can be missing", desired: 0},
		"Invalid":  {reason: "the error names the field", strategy: map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": "some"}}, desired: 4, err: "spec.strategy.rollingUpdate.maxUnavailable"},
		"Surge":    {reason: "the error names this field, too", strategy: map[string]any{"rollingUpdate": map[string]any{"maxSurge": "some"}}, desired: 4, err: "spec.strategy.rollingUpdate.maxSurge"},
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
	var reports []Report
	for i := range 12 {
		reports = append(reports, Report{Cluster: fmt.Sprintf("c%02d", i), Reachable: true})
	}
	if got := clusterNames(reports); !strings.HasSuffix(got, "c09 and 2 more") {
		t.Errorf("got %q, want ten names and a number", got)
	}
	if got := clusterNames(reports[:10]); !strings.HasSuffix(got, "c08, c09") {
		t.Errorf("got %q, want all ten", got)
	}
}

func TestAddSaturating(t *testing.T) {
	t.Parallel()
	if got := addSaturating(math.MaxInt64, 3); got != math.MaxInt64 {
		t.Errorf("got %d: the sum of two networks with 2^63 addresses must not be negative", got)
	}
	n, err := numberField(map[string]any{"capacity": float64(math.MaxInt64)}, "capacity")
	if err != nil || n != math.MaxInt64 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, invalid := range []any{1.5, math.Inf(-1), true} {
		if n, err := numberField(map[string]any{"x": invalid}, "x"); err == nil {
			t.Errorf("got %d for %v, want an error", n, invalid)
		}
	}
}

// observedGeneration is never ahead of the object, never decreases while the object's generation does
// not, and is the object's generation only when all clusters have observed it.
func TestObservedGeneration(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		generation := rapid.Int64Range(1, 5).Draw(t, "generation")
		was := rapid.Int64Range(0, generation).Draw(t, "was")
		object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"observedGeneration": was}}}
		object.SetGeneration(generation)
		reports := make([]Report, rapid.IntRange(0, 4).Draw(t, "reports"))
		all := true
		for i := range reports {
			reports[i].ObservedGeneration = rapid.Int64Range(0, 6).Draw(t, "observed")
			all = all && reports[i].ObservedGeneration >= generation
		}
		got := observedGeneration(object, reports)
		if got < was || got > generation || all && got != generation || !all && was < generation && got == generation {
			t.Fatalf("observed %d of generation %d, was %d, reports %+v", got, generation, was, reports)
		}
	})
}

// Sums of counts that the API server accepts are counts that it accepts.
func TestSumsAreConsistent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reports := make([]Report, rapid.IntRange(0, 5).Draw(t, "reports"))
		for i := range reports {
			total := rapid.Int64Range(0, 9).Draw(t, "total")
			ready := rapid.Int64Range(0, total).Draw(t, "ready")
			reports[i] = Report{Cluster: fmt.Sprint(i), ObservedGeneration: rapid.Int64Range(0, 2).Draw(t, "observed"), Status: map[string]any{
				"replicas": total, "readyReplicas": ready, "availableReplicas": rapid.Int64Range(0, ready).Draw(t, "available"),
				"updatedReplicas": rapid.Int64Range(0, total).Draw(t, "updated"),
			}}
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
		object.SetGeneration(2)
		sum, err := SumStatuses(object, reports, noon())
		if err != nil {
			t.Fatal(err)
		}
		total, ready, available := numberOrZero(sum, "replicas"), numberOrZero(sum, "readyReplicas"), numberOrZero(sum, "availableReplicas")
		if updated := numberOrZero(sum, "updatedReplicas"); updated > total || ready > total || available > ready {
			t.Fatalf("the API server would reject %v", sum)
		}
	})
}
