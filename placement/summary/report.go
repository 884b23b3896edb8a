// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Row is what one cluster reports of an object.
type Row struct {
	// Cluster by name.
	Cluster string
	// Observed is the generation of the hub's object that Status speaks of, 0 for none.
	Observed int64
	// Generation of the object in the cluster, read together with Status.
	Generation int64
	// Asked is how many replicas are asked of the cluster now; nil for kinds without.
	Asked *int32
	// Wanted is how many it is to have in the end: less than Asked where a move takes
	// them away. It matters where clusters have a full set each.
	Wanted *int32
	// Ready says that the object is ready there.
	Ready bool
	// Reachable says that the cluster's agent was heard of lately. What it said last
	// stands until then; messages tell.
	Reachable bool
	// Status of the object there, nil when there is none yet.
	Status map[string]any
}

// current tells whether a row speaks of the present object at the hub.
func (r Row) current(object *unstructured.Unstructured) bool {
	return r.Observed >= object.GetGeneration()
}

// byCluster returns the rows in the order of their clusters' names.
func byCluster(rows []Row) []Row {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return rows
}

// statusOf returns an object's present status; nil when it has none.
func statusOf(object *unstructured.Unstructured) map[string]any {
	status, _ := object.Object["status"].(map[string]any)
	return status
}

// number reads a number of a status; what is not there is 0.
func number(status map[string]any, field string) (int64, error) {
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

// least reads a number of a status on which nothing depends; what cannot be read is 0.
func least(status map[string]any, field string) int64 {
	n, err := number(status, field)
	if err != nil {
		return 0
	}
	return n
}

// words reads a text of a status; what is no text is empty.
func words(status map[string]any, field string) string {
	s, _ := status[field].(string)
	return s
}

// Counts are the replicas that a status tells of. Kinds that nobody here knows are read
// by the usual names of fields; of a kind without replicas all counts are 0.
func Counts(gk schema.GroupKind, status map[string]any) v1alpha1.ReplicaCounts {
	total, ready, available := "replicas", "readyReplicas", "availableReplicas"
	switch gk {
	case daemonSets:
		total, ready, available = "currentNumberScheduled", "numberReady", "numberAvailable"
	case jobs:
		total, ready, available = "active", "ready", "ready"
	}
	return v1alpha1.ReplicaCounts{
		Total: count(status, total), Ready: count(status, ready), Available: count(status, available),
	}
}

// count reads a count, which is at least 0 and has 32 bits.
func count(status map[string]any, field string) int32 {
	return int32(min(max(0, least(status, field)), math.MaxInt32))
}
