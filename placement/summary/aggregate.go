// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"math"
	"time"

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

// Sum is the status of an object that runs in several clusters, or in none. The answer
// is nil when there is nothing to write: the kind has no status, or it is the hub's
// own. An error names object, cluster and field.
func Sum(object *unstructured.Unstructured, rows []Row, now time.Time) (map[string]any, error) {
	rows = byCluster(rows)
	status, err := sum(&input{object: object, rows: rows, now: now})
	if err != nil {
		return nil, fmt.Errorf("summarize status of %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return status, nil
}

// input is what a summary is made from.
type input struct {
	object *unstructured.Unstructured
	rows   []Row // in the order of clusters
	now    time.Time
}

// sum builds the summary of a kind.
func sum(in *input) (map[string]any, error) {
	gk := in.object.GroupVersionKind().GroupKind()
	switch gk {
	case namespaces:
		return nil, nil
	case services, ingresses:
		return balancers(in.rows), nil
	case claims:
		return claim(in)
	case pods:
		return pod(in), nil
	case cronJobs:
		return cronJob(in.rows), nil
	}
	status, err := add(in.object, in.rows)
	if err != nil {
		return nil, err
	}
	switch {
	case gk == jobs:
		return job(in, status), nil
	case gk.Group == networkGroup:
		in.setConditions(status, in.merged())
		return status, nil
	case counted(gk) == nil:
		return other(in), nil
	}
	status["observedGeneration"] = observed(in.object, in.rows)
	keepCollisions(in.object, status)
	switch gk {
	case deployments:
		return status, in.deployment(status)
	case statefulSets:
		in.revisions(status)
	case scalers:
		latest(status, in.rows, "lastScaleTime")
	}
	in.setConditions(status, in.merged())
	return status, nil
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

// plus adds two counts and stops at the largest number.
func plus(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
