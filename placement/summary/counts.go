// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"math"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

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
