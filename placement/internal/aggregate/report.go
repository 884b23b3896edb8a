// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Report is what one cluster reports of an object.
type Report struct {
	// Cluster by name.
	Cluster string
	// ObservedGeneration is the generation of the hub's object that Status speaks of, 0 for none.
	ObservedGeneration int64
	// Generation of the object in the cluster, read together with Status.
	Generation int64
	// Requested is how many replicas are asked of the cluster now; nil for kinds without.
	Requested *int32
	// Desired is how many it is to have in the end: less than Asked where a move takes
	// them away. It matters where clusters have a full set each.
	Desired *int32
	// Ready says that the object is ready there.
	Ready bool
	// Reachable says that the cluster's agent was heard of lately. What it said last
	// stands until then; messages tell.
	Reachable bool
	// Status of the object there, nil when there is none yet.
	Status map[string]any
}

// isCurrent tells whether a row speaks of the present object at the hub.
func (r Report) isCurrent(object *unstructured.Unstructured) bool {
	return r.ObservedGeneration >= object.GetGeneration()
}

// sortedByCluster returns the rows in the order of their clusters' names.
func sortedByCluster(rows []Report) []Report {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b Report) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return rows
}

// statusOf returns an object's present status; nil when it has none.
func statusOf(object *unstructured.Unstructured) map[string]any {
	status, _ := object.Object["status"].(map[string]any)
	return status
}

// numberField reads a number of a status; what is not there is 0.
func numberField(status map[string]any, field string) (int64, error) {
	switch n := status[field].(type) {
	case nil:
		return 0, nil
	case int64:
		return n, nil
	case float64: // from a JSON decoder that knows no integers
		if n >= math.MaxInt64 {
			return math.MaxInt64, nil
		}
		if n == math.Trunc(n) && n > math.MinInt64 {
			return int64(n), nil
		}
	}
	return 0, fmt.Errorf("status.%s is %v, want a whole number", field, status[field])
}

// numberOrZero reads a number of a status on which nothing depends; what cannot be read is 0.
func numberOrZero(status map[string]any, field string) int64 {
	n, err := numberField(status, field)
	if err != nil {
		return 0
	}
	return n
}

// stringField reads a text of a status; what is no text is empty.
func stringField(status map[string]any, field string) string {
	s, _ := status[field].(string)
	return s
}

// ReplicaCounts are the replicas that a status tells of. Kinds that nobody here knows are read
// by the usual names of fields; of a kind without replicas all counts are 0.
func ReplicaCounts(gk schema.GroupKind, status map[string]any) v1alpha1.ReplicaCounts {
	total, ready, available := "replicas", "readyReplicas", "availableReplicas"
	switch gk {
	case daemonSetKind:
		total, ready, available = "currentNumberScheduled", "numberReady", "numberAvailable"
	case jobKind:
		total, ready, available = "active", "ready", "ready"
	}
	return v1alpha1.ReplicaCounts{
		Total: countField(status, total), Ready: countField(status, ready), Available: countField(status, available),
	}
}

// countField reads a count, which is at least 0 and has 32 bits.
func countField(status map[string]any, field string) int32 {
	return int32(min(max(0, numberOrZero(status, field)), math.MaxInt32))
}
