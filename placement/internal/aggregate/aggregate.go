// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds that have a summary of their own.
var (
	deploymentKind       = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	statefulSetKind      = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	daemonSetKind        = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	replicaSetKind       = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	jobKind              = schema.GroupKind{Group: "batch", Kind: "Job"}
	autoscalerKind       = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
	disruptionBudgetKind = schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}
	cronJobKind          = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	serviceKind          = schema.GroupKind{Kind: "Service"}
	ingressKind          = schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}
	volumeClaimKind      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	podKind              = schema.GroupKind{Kind: "Pod"}
	namespaceKind        = schema.GroupKind{Kind: "Namespace"}
)

// SumStatuses is the status of an object that runs in several clusters, or in none. The answer
// is nil when there is nothing to write: the kind has no status, or it is the hub's
// own. An error names object, cluster and field.
func SumStatuses(object *unstructured.Unstructured, rows []Report, now time.Time) (map[string]any, error) {
	rows = sortedByCluster(rows)
	status, err := sumByKind(&aggregation{object: object, reports: rows, now: now})
	if err != nil {
		return nil, fmt.Errorf("summarize status of %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return status, nil
}

// aggregation is what a summary is made from.
type aggregation struct {
	object  *unstructured.Unstructured
	reports []Report // in the order of clusters
	now     time.Time
}

// sumByKind builds the summary of a kind.
func sumByKind(in *aggregation) (map[string]any, error) {
	gk := in.object.GroupVersionKind().GroupKind()
	switch gk {
	case namespaceKind:
		return nil, nil
	case serviceKind, ingressKind:
		return loadBalancerStatus(in.reports), nil
	case volumeClaimKind:
		return volumeClaimStatus(in)
	case podKind:
		return podStatus(in), nil
	case cronJobKind:
		return cronJobStatus(in.reports), nil
	}
	status, err := sumCounts(in.object, in.reports)
	if err != nil {
		return nil, err
	}
	switch {
	case gk == jobKind:
		return jobStatus(in, status), nil
	case gk.Group == networkGroup:
		in.setConditions(status, in.mergedConditions())
		return status, nil
	case summedFields(gk) == nil:
		return unknownKindStatus(in), nil
	}
	status["observedGeneration"] = observedGeneration(in.object, in.reports)
	keepCollisionCount(in.object, status)
	switch gk {
	case deploymentKind:
		return status, in.setDeploymentConditions(status)
	case statefulSetKind:
		in.setRevisions(status)
	case autoscalerKind:
		setLatestTimes(status, in.reports, "lastScaleTime")
	}
	in.setConditions(status, in.mergedConditions())
	return status, nil
}

// sumCounts adds up the counts of a kind. Fields that no cluster has are left out.
func sumCounts(object *unstructured.Unstructured, rows []Report) (map[string]any, error) {
	gk := object.GroupVersionKind().GroupKind()
	sum := map[string]any{}
	addOne := func(row Report, field string) error {
		n, err := numberField(row.Status, field)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", row.Cluster, err)
		}
		if _, ok := row.Status[field]; ok {
			sum[field] = addSaturating(numberOrZero(sum, field), n)
		}
		return nil
	}
	for _, row := range rows {
		for _, field := range summedFields(gk) {
			if err := addOne(row, field); err != nil {
				return nil, err
			}
		}
		if field := updatedField(gk); field != "" && row.isCurrent(object) {
			if err := addOne(row, field); err != nil {
				return nil, err
			}
		}
	}
	return sum, nil
}

// summedFields are the fields of a kind that are added up.
func summedFields(gk schema.GroupKind) []string {
	switch gk {
	case deploymentKind:
		return []string{"replicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "terminatingReplicas"}
	case statefulSetKind:
		return []string{"replicas", "readyReplicas", "availableReplicas", "currentReplicas"}
	case daemonSetKind:
		return []string{
			"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
			"numberAvailable", "numberUnavailable",
		}
	case replicaSetKind:
		return []string{"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"}
	case autoscalerKind:
		return []string{"currentReplicas", "desiredReplicas"}
	case disruptionBudgetKind:
		return []string{"currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"}
	case jobKind:
		return []string{"active", "ready", "terminating", "succeeded", "failed"}
	}
	if gk.Group == networkGroup {
		return []string{"allocated", "capacity"}
	}
	return nil
}

// updatedField is the field of a kind that counts what is up to date, if there is one: of a
// cluster that has not seen the present object it counts nothing.
func updatedField(gk schema.GroupKind) string {
	switch gk {
	case deploymentKind, statefulSetKind:
		return "updatedReplicas"
	case daemonSetKind:
		return "updatedNumberScheduled"
	}
	return ""
}

// addSaturating adds two counts and stops at the largest number.
func addSaturating(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
