// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// deploymentConditions computes a Deployment's conditions from the sums in its status, as the
// Deployment controller does from the status in one cluster.
func deploymentConditions(object *unstructured.Unstructured, reports []Report, status map[string]any) ([]condition, error) {
	desired := desiredReplicas(object, reports)
	unavailable, err := maxUnavailable(object, desired)
	if err != nil {
		return nil, err
	}
	list := []condition{availableCondition(reports, status, desired, unavailable), progressingCondition(object, reports, status, desired)}
	for _, r := range reports {
		if c := conditionsByType(r.Status)["ReplicaFailure"]; stringField(c, "status") == statusTrue {
			list = append(list, condition{conditionType: "ReplicaFailure", status: statusTrue, reason: stringField(c, "reason"), message: r.withCluster(stringField(c, "message"))})
			break
		}
	}
	for i := range list {
		list[i].timeField = "lastUpdateTime"
	}
	return list, nil
}

// desiredReplicas returns spec.replicas, or more where each cluster has all replicas. The surge of a
// move does not count.
func desiredReplicas(object *unstructured.Unstructured, reports []Report) int64 {
	replicas, ok, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
	if !ok || err != nil {
		replicas = 1
	}
	var sum int64
	for _, r := range reports {
		if r.Desired != nil {
			sum += int64(*r.Desired)
		}
	}
	return max(replicas, sum)
}

// maxUnavailable returns how many of the desired replicas the Deployment's strategy lets be missing.
func maxUnavailable(object *unstructured.Unstructured, desired int64) (int64, error) {
	strategy, _, err := unstructured.NestedMap(object.Object, "spec", "strategy")
	if err != nil {
		return 0, fmt.Errorf("read spec.strategy: %w", err)
	}
	if stringField(strategy, "type") == "Recreate" || desired == 0 {
		return 0, nil
	}
	scaled := func(field string, up bool) (int64, error) {
		value, _, _ := unstructured.NestedFieldNoCopy(strategy, "rollingUpdate", field)
		if value == nil {
			value = "25%"
		}
		parsed := intstr.Parse(fmt.Sprint(value))
		n, err := intstr.GetScaledValueFromIntOrPercent(&parsed, int(desired), up)
		if err != nil {
			return 0, fmt.Errorf("read spec.strategy.rollingUpdate.%s: %w", field, err)
		}
		return int64(n), nil
	}
	unavailable, err := scaled("maxUnavailable", false)
	if err != nil {
		return 0, err
	}
	surge, err := scaled("maxSurge", true)
	if err == nil && unavailable == 0 && surge == 0 {
		unavailable = 1 // or nothing could ever be replaced
	}
	return min(unavailable, desired), err
}

// availableCondition computes a Deployment's condition Available.
func availableCondition(reports []Report, status map[string]any, desired, unavailable int64) condition {
	available := numberOrZero(status, "availableReplicas")
	c := condition{conditionType: "Available", status: statusTrue, reason: "MinimumReplicasAvailable"}
	if available < desired-unavailable {
		c.status, c.reason = statusFalse, "MinimumReplicasUnavailable"
	}
	c.message = fmt.Sprintf("%d of %d replicas are available in %s", available, desired, clusterNames(reports))
	return c
}

// progressingCondition computes a Deployment's condition Progressing: False if it is in a cluster,
// else Unknown if it is in a cluster. The rollout is complete when it is complete in all clusters.
func progressingCondition(object *unstructured.Unstructured, reports []Report, status map[string]any, desired int64) condition {
	for _, unhealthy := range []string{statusFalse, statusUnknown} {
		for _, r := range reports {
			c := conditionsByType(r.Status)["Progressing"]
			if stringField(c, "status") == unhealthy && r.isCurrent(object) && !r.isScaledToZero() {
				return condition{conditionType: "Progressing", status: unhealthy, reason: stringField(c, "reason"), message: r.withCluster(stringField(c, "message"))}
			}
		}
	}
	c := condition{conditionType: "Progressing", status: statusTrue, reason: "ReplicaSetUpdated", message: "is progressing in " + clusterNames(reports)}
	total := numberOrZero(status, "replicas")
	allCurrent := !slices.ContainsFunc(reports, func(r Report) bool { return !r.isCurrent(object) })
	if allCurrent && total >= desired && numberOrZero(status, "updatedReplicas") == total && numberOrZero(status, "availableReplicas") == total {
		c.reason, c.message = "NewReplicaSetAvailable", "has successfully progressed in "+clusterNames(reports)
	}
	return c
}

// setRevisions sets currentRevision and updateRevision of a StatefulSet, which differ during a rollout in
// any cluster. Each cluster names revisions on its own; the status has the names of the first cluster
// with a rollout, else of the first one.
func setRevisions(status map[string]any, reports []Report) {
	for _, r := range reports {
		from, to := stringField(r.Status, "currentRevision"), stringField(r.Status, "updateRevision")
		if to == "" {
			continue
		}
		if _, ok := status["updateRevision"]; !ok || from != to {
			status["currentRevision"], status["updateRevision"] = from, to
		}
		if from != to {
			return
		}
	}
}

// Conditions of a Job.
const (
	jobComplete  = "Complete"
	jobFailed    = "Failed"
	jobSuspended = "Suspended"
	// The API server wants these two before Complete and Failed, which need that no Pod is left.
	jobSuccessCriteriaMet = "SuccessCriteriaMet"
	jobFailureTarget      = "FailureTarget"
)

// jobStatus completes the sums of a Job with times and conditions: the Job fails when it fails in any
// cluster, and is complete when it is complete in all. It leaves out the completed indexes, which each
// cluster counts on its own.
func jobStatus(object *unstructured.Unstructured, reports []Report, status map[string]any, now time.Time) map[string]any {
	for i, r := range reports {
		if start := stringField(r.Status, "startTime"); start != "" && (i == 0 || status["startTime"] == nil || isTimeBefore(start, stringField(status, "startTime"))) {
			status["startTime"] = start
		}
	}
	if was := stringField(statusOf(object), "startTime"); was != "" {
		status["startTime"] = was // before the conditions: a Job that ends must have one
	}
	setConditions(object, status, jobConditions(object, reports, status), now)
	if isConditionTrue(status, jobComplete) {
		setLatestTimes(status, reports, "completionTime")
	}
	return keepJobProgress(object, status)
}

// jobConditions computes the conditions of a Job.
func jobConditions(object *unstructured.Unstructured, reports []Report, status map[string]any) []condition {
	ended := status["startTime"] != nil
	for _, field := range []string{"active", "ready", "terminating"} {
		ended = ended && numberOrZero(status, field) == 0
	}
	var list []condition
	add := func(kind string, c condition) {
		c.conditionType, c.status, c.timeField = kind, statusTrue, "lastProbeTime"
		list = append(list, c)
	}
	failed, isFailed := anyReportCondition(reports, jobFailed)
	failing, isFailing := anyReportCondition(reports, jobFailureTarget)
	switch {
	case isFailed:
		add(jobFailureTarget, failed)
		if ended {
			add(jobFailed, failed)
		}
	case isFailing:
		add(jobFailureTarget, failing)
	case allReportsHaveCondition(reports, jobComplete, jobSuccessCriteriaMet):
		done := condition{reason: "CompletionsReached", message: "complete in " + clusterNames(reports)}
		add(jobSuccessCriteriaMet, done)
		if ended && allReportsHaveCondition(reports, jobComplete) {
			add(jobComplete, done)
		}
	case allReportsHaveCondition(reports, jobSuspended):
		add(jobSuspended, condition{reason: "JobSuspended", message: "suspended in " + clusterNames(reports)})
	case conditionsByType(statusOf(object))[jobSuspended] != nil:
		list = append(list, condition{conditionType: jobSuspended, status: statusFalse, reason: "JobResumed", message: "resumed in " + clusterNames(reports), timeField: "lastProbeTime"})
	}
	return list
}

// anyReportCondition returns a condition of the Job from the first cluster in which it is true.
func anyReportCondition(reports []Report, kind string) (condition, bool) {
	for _, r := range reports {
		if isConditionTrue(r.Status, kind) {
			c := conditionsByType(r.Status)[kind]
			return condition{reason: stringField(c, "reason"), message: r.withCluster(stringField(c, "message"))}, true
		}
	}
	return condition{}, false
}

// allReportsHaveCondition tells whether each cluster has one of the conditions as true.
func allReportsHaveCondition(reports []Report, kinds ...string) bool {
	for _, r := range reports {
		if !slices.ContainsFunc(kinds, func(kind string) bool { return isConditionTrue(r.Status, kind) }) {
			return false
		}
	}
	return len(reports) > 0
}
