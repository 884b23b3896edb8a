// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds with a summary of their own, as the text of a schema.GroupKind.
const (
	deploymentKind       = "Deployment.apps"
	statefulSetKind      = "StatefulSet.apps"
	daemonSetKind        = "DaemonSet.apps"
	replicaSetKind       = "ReplicaSet.apps"
	jobKind              = "Job.batch"
	autoscalerKind       = "HorizontalPodAutoscaler.autoscaling"
	disruptionBudgetKind = "PodDisruptionBudget.policy"
	cronJobKind          = "CronJob.batch"
	serviceKind          = "Service"
	ingressKind          = "Ingress.networking.k8s.io"
	volumeClaimKind      = "PersistentVolumeClaim"
	podKind              = "Pod"
	namespaceKind        = "Namespace"
)

// SumStatuses returns the status of an object that runs in several clusters, or in none; nil when there
// is nothing to write, because the kind has no status or the hub's controllers write it. It does not
// change its arguments. An error names object, cluster and field.
func SumStatuses(object *unstructured.Unstructured, reports []Report, now time.Time) (map[string]any, error) {
	status, err := sumByKind(object, sortedByCluster(reports), now)
	if err != nil {
		return nil, fmt.Errorf("summarize status of %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return status, nil
}

// sortedByCluster returns the reports in the order of their clusters' names.
func sortedByCluster(reports []Report) []Report {
	reports = slices.Clone(reports)
	slices.SortFunc(reports, func(a, b Report) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return reports
}

// sumByKind builds the summary of the object's kind. The reports are in the order of clusters.
func sumByKind(object *unstructured.Unstructured, reports []Report, now time.Time) (map[string]any, error) {
	gk := object.GroupVersionKind().GroupKind()
	switch gk.String() {
	case namespaceKind:
		return nil, nil
	case serviceKind, ingressKind:
		return loadBalancerStatus(reports), nil
	case volumeClaimKind:
		return volumeClaimStatus(object, reports, now)
	case podKind:
		return podStatus(object, reports, now), nil
	case cronJobKind:
		return cronJobStatus(reports), nil
	}
	if gk.Group == networkGroup {
		return networkStatus(object, reports, now)
	}
	status, err := sumCounts(object, reports)
	if err != nil {
		return nil, err
	}
	switch {
	case gk.String() == jobKind:
		return jobStatus(object, reports, status, now), nil
	case summedFields(gk) == nil:
		return unknownKindStatus(object, reports, now), nil
	}
	status["observedGeneration"] = observedGeneration(object, reports)
	keepCollisionCount(object, status)
	conditions := mergedConditions(object, reports)
	switch gk.String() {
	case deploymentKind:
		if conditions, err = deploymentConditions(object, reports, status); err != nil {
			return nil, err
		}
	case statefulSetKind:
		setRevisions(status, reports)
	case autoscalerKind:
		setLatestTimes(status, reports, "lastScaleTime")
	}
	setConditions(object, status, conditions, now)
	return status, nil
}

// sumCounts adds up the counts of a kind. It leaves out fields that no cluster reports.
func sumCounts(object *unstructured.Unstructured, reports []Report) (map[string]any, error) {
	gk := object.GroupVersionKind().GroupKind()
	sum := map[string]any{}
	addOne := func(r Report, field string) error {
		n, err := numberField(r.Status, field)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", r.Cluster, err)
		}
		if _, ok := r.Status[field]; ok {
			sum[field] = addSaturating(numberOrZero(sum, field), n)
		}
		return nil
	}
	for _, r := range reports {
		for _, field := range summedFields(gk) {
			if err := addOne(r, field); err != nil {
				return nil, err
			}
		}
		if field := updatedField(gk); field != "" && r.isCurrent(object) {
			if err := addOne(r, field); err != nil {
				return nil, err
			}
		}
	}
	return sum, nil
}

// summedFields are the status fields of a kind that are added up; nil for a kind without such fields.
func summedFields(gk schema.GroupKind) []string {
	switch gk.String() {
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
	return nil
}

// updatedField is the status field of a kind that counts replicas of the present revision; "" for none.
// It is not added up for clusters that have not observed the present object.
func updatedField(gk schema.GroupKind) string {
	switch gk.String() {
	case deploymentKind, statefulSetKind:
		return "updatedReplicas"
	case daemonSetKind:
		return "updatedNumberScheduled"
	}
	return ""
}

// addSaturating adds two counts, up to the largest int64.
func addSaturating(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
