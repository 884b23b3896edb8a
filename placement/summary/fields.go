// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds that have a summary of their own.
var (
	deployments  = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	statefulSets = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	daemonSets   = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	replicaSets  = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	jobs         = schema.GroupKind{Group: "batch", Kind: "Job"}
	scalers      = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
	budgets      = schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}
	cronJobs     = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	services     = schema.GroupKind{Kind: "Service"}
	ingresses    = schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}
	claims       = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	pods         = schema.GroupKind{Kind: "Pod"}
	namespaces   = schema.GroupKind{Kind: "Namespace"}
)

// counted are the fields of a kind that are added up.
func counted(gk schema.GroupKind) []string {
	switch gk {
	case deployments:
		return []string{"replicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "terminatingReplicas"}
	case statefulSets:
		return []string{"replicas", "readyReplicas", "availableReplicas", "currentReplicas"}
	case daemonSets:
		return []string{
			"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
			"numberAvailable", "numberUnavailable",
		}
	case replicaSets:
		return []string{"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"}
	case scalers:
		return []string{"currentReplicas", "desiredReplicas"}
	case budgets:
		return []string{"currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"}
	case jobs:
		return []string{"active", "ready", "terminating", "succeeded", "failed"}
	}
	if gk.Group == networkGroup {
		return []string{"allocated", "capacity"}
	}
	return nil
}

// updated is the field of a kind that counts what is up to date, if there is one: of a
// cluster that has not seen the present object it counts nothing.
func updated(gk schema.GroupKind) string {
	switch gk {
	case deployments, statefulSets:
		return "updatedReplicas"
	case daemonSets:
		return "updatedNumberScheduled"
	}
	return ""
}

// add adds up the counts of a kind. Fields that no cluster has are left out.
func add(object *unstructured.Unstructured, rows []Row) (map[string]any, error) {
	gk := object.GroupVersionKind().GroupKind()
	sum := map[string]any{}
	addOne := func(row Row, field string) error {
		n, err := number(row.Status, field)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", row.Cluster, err)
		}
		if _, ok := row.Status[field]; ok {
			sum[field] = plus(least(sum, field), n)
		}
		return nil
	}
	for _, row := range rows {
		for _, field := range counted(gk) {
			if err := addOne(row, field); err != nil {
				return nil, err
			}
		}
		if field := updated(gk); field != "" && row.current(object) {
			if err := addOne(row, field); err != nil {
				return nil, err
			}
		}
	}
	return sum, nil
}

// plus adds two counts and stops at the largest number.
func plus(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
