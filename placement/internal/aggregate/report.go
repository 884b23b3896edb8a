// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Report is what one cluster reports of an object.
type Report struct {
	// Cluster is the cluster's name.
	Cluster string
	// ObservedGeneration is the generation of the hub's object that Status belongs to; 0 for none.
	ObservedGeneration int64
	// Generation of the object in the cluster, read together with Status.
	Generation int64
	// Requested are the replicas that the hub requests of the cluster now; nil for kinds without replicas.
	Requested *int32
	// Desired are the replicas that the cluster is to have after the move: fewer than Requested while the
	// move takes them away.
	Desired *int32
	// Ready is true when the object is ready in the cluster.
	Ready bool
	// Reachable is true when the cluster's heartbeat is fresh. Else Status is the last one reported.
	Reachable bool
	// Status of the object in the cluster; nil when there is none yet.
	Status map[string]any
}

// isCurrent tells whether the cluster has observed the present object of the hub.
func (r Report) isCurrent(object *unstructured.Unstructured) bool {
	return r.ObservedGeneration >= object.GetGeneration()
}

// isScaledToZero tells whether the hub requests no replica of the cluster: a failure there does not
// count.
func (r Report) isScaledToZero() bool { return r.Requested != nil && *r.Requested == 0 }

// withCluster adds the cluster's name to a message of its status.
func (r Report) withCluster(message string) string {
	if !r.Reachable {
		message = strings.TrimSpace(message + " (unreachable: this is the last report)")
	}
	return strings.TrimSuffix(r.Cluster+": "+message, ": ")
}

// clusterNames lists the clusters that report, for messages.
func clusterNames(reports []Report) string {
	if len(reports) == 0 {
		return "no cluster"
	}
	names := make([]string, 0, len(reports))
	for _, r := range reports {
		if r.Reachable {
			names = append(names, r.Cluster)
		} else {
			names = append(names, r.Cluster+" (unreachable)")
		}
		if len(names) == 10 && len(reports) > 10 {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(reports)-10)
		}
	}
	return strings.Join(names, ", ")
}

// statusOf returns an object's present status; nil when it has none.
func statusOf(object *unstructured.Unstructured) map[string]any {
	status, _ := object.Object["status"].(map[string]any)
	return status
}

// numberField reads a number of a status; 0 for a missing field.
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
	return 0, fmt.Errorf("status.%s: %v must be a whole number", field, status[field])
}

// numberOrZero reads a number of a status; 0 for a missing or invalid field.
func numberOrZero(status map[string]any, field string) int64 {
	n, err := numberField(status, field)
	if err != nil {
		return 0
	}
	return n
}

// stringField reads a string of a status; "" for a missing or invalid field.
func stringField(status map[string]any, field string) string {
	s, _ := status[field].(string)
	return s
}

// ReplicaCounts returns the replicas of a status. For kinds that this package does not know it reads the
// fields replicas, readyReplicas and availableReplicas; for a kind without replicas all counts are 0.
func ReplicaCounts(gk schema.GroupKind, status map[string]any) v1alpha1.ReplicaCounts {
	total, ready, available := "replicas", "readyReplicas", "availableReplicas"
	switch gk.String() {
	case daemonSetKind:
		total, ready, available = "currentNumberScheduled", "numberReady", "numberAvailable"
	case jobKind:
		total, ready, available = "active", "ready", "ready"
	}
	return v1alpha1.ReplicaCounts{
		Total: countField(status, total), Ready: countField(status, ready), Available: countField(status, available),
	}
}

// countField reads a count, limited to 0 … math.MaxInt32.
func countField(status map[string]any, field string) int32 {
	return int32(min(max(0, numberOrZero(status, field)), math.MaxInt32))
}
