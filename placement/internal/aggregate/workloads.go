// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// setDeploymentConditions computes a Deployment's conditions from the sums in its status, as the
// controller in a cluster does from its own.
func (in *aggregation) setDeploymentConditions(status map[string]any) error {
	desired := in.desiredReplicas()
	unavailable, err := maxUnavailable(in.object, desired)
	if err != nil {
		return err
	}
	list := []condition{in.availableCondition(status, desired, unavailable), in.progressingCondition(status, desired)}
	for i, row := range in.reports {
		if c := conditionsByType(row.Status)["ReplicaFailure"]; stringField(c, "status") == statusTrue {
			list = append(list, condition{conditionType: "ReplicaFailure", status: statusTrue, reason: stringField(c, "reason"), message: in.withClusterName(i, stringField(c, "message"))})
			break
		}
	}
	for i := range list {
		list[i].timeField = "lastUpdateTime"
	}
	in.setConditions(status, list)
	return nil
}

// desiredReplicas is how many replicas there are to be: what the object says, or more where
// clusters have a full set each. What a move adds for a while is not counted.
func (in *aggregation) desiredReplicas() int64 {
	replicas, ok, err := unstructured.NestedInt64(in.object.Object, "spec", "replicas")
	if !ok || err != nil {
		replicas = 1
	}
	var wanted int64
	for _, row := range in.reports {
		if row.Desired != nil {
			wanted += int64(*row.Desired)
		}
	}
	return max(replicas, wanted)
}

// maxUnavailable is how many of the desired replicas may be missing, by the strategy.
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

// availableCondition is the condition Available.
func (in *aggregation) availableCondition(status map[string]any, desired, unavailable int64) condition {
	has := numberOrZero(status, "availableReplicas")
	c := condition{conditionType: "Available", status: statusTrue, reason: "MinimumReplicasAvailable"}
	if has < desired-unavailable {
		c.status, c.reason = statusFalse, "MinimumReplicasUnavailable"
	}
	c.message = fmt.Sprintf("%d of %d replicas are available in %s", has, desired, in.clusterNames())
	return c
}

// progressingCondition is a Deployment's condition Progressing: a cluster that has given up says
// it for all, one that is paused after that, and it is done when all have done.
func (in *aggregation) progressingCondition(status map[string]any, desired int64) condition {
	for _, bad := range []string{statusFalse, statusUnknown} {
		for i, row := range in.reports {
			c := conditionsByType(row.Status)["Progressing"]
			if stringField(c, "status") == bad && row.isCurrent(in.object) && !isScaledToZero(row) {
				return condition{conditionType: "Progressing", status: bad, reason: stringField(c, "reason"), message: in.withClusterName(i, stringField(c, "message"))}
			}
		}
	}
	c := condition{conditionType: "Progressing", status: statusTrue, reason: "ReplicaSetUpdated", message: "is progressing in " + in.clusterNames()}
	total := numberOrZero(status, "replicas")
	if in.allCurrent() && total >= desired && numberOrZero(status, "updatedReplicas") == total && numberOrZero(status, "availableReplicas") == total {
		c.reason, c.message = "NewReplicaSetAvailable", "has successfully progressed in "+in.clusterNames()
	}
	return c
}

// isScaledToZero tells whether nothing is asked of a cluster: what fails there is in nobody's
// way.
func isScaledToZero(r Report) bool { return r.Requested != nil && *r.Requested == 0 }

// allCurrent tells whether all clusters speak of the present object.
func (in *aggregation) allCurrent() bool {
	for _, row := range in.reports {
		if !row.isCurrent(in.object) {
			return false
		}
	}
	return true
}

// setRevisions gives a StatefulSet the names of its revisions, which differ as long as a
// roll-out goes on somewhere. Clusters name them on their own; the first one's stand
// for all.
func (in *aggregation) setRevisions(status map[string]any) {
	for _, row := range in.reports {
		from, to := stringField(row.Status, "currentRevision"), stringField(row.Status, "updateRevision")
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

// A Job's conditions.
const (
	jobComplete  = "Complete"
	jobFailed    = "Failed"
	jobSuspended = "Suspended"
	// What is to come is said first, and what is done when no Pod is left anywhere.
	jobSuccessCriteriaMet = "SuccessCriteriaMet"
	jobFailureTarget      = "FailureTarget"
)

// jobStatus completes the sums of a Job with times and conditions: it fails when it fails in
// any cluster, and is complete when it is in all. Indexes are each cluster's own and
// not told.
func jobStatus(in *aggregation, status map[string]any) map[string]any {
	for i, row := range in.reports {
		if start := stringField(row.Status, "startTime"); start != "" && (i == 0 || status["startTime"] == nil || isTimeBefore(start, stringField(status, "startTime"))) {
			status["startTime"] = start
		}
	}
	if was := stringField(statusOf(in.object), "startTime"); was != "" {
		status["startTime"] = was // before conditions are decided: a Job that ends has one
	}
	in.setConditions(status, in.jobConditions(status))
	if isConditionTrue(status, jobComplete) {
		setLatestTimes(status, in.reports, "completionTime")
	}
	return keepJobProgress(in.object, status)
}

// jobConditions decides what is said of a Job.
func (in *aggregation) jobConditions(status map[string]any) []condition {
	ended := status["startTime"] != nil
	for _, field := range []string{"active", "ready", "terminating"} {
		ended = ended && numberOrZero(status, field) == 0
	}
	var list []condition
	say := func(kind string, c condition) {
		c.conditionType, c.status, c.timeField = kind, statusTrue, "lastProbeTime"
		list = append(list, c)
	}
	failed, isFailed := in.anyReportCondition(jobFailed)
	fails, isFailing := in.anyReportCondition(jobFailureTarget)
	switch {
	case isFailed:
		say(jobFailureTarget, failed)
		if ended {
			say(jobFailed, failed)
		}
	case isFailing:
		say(jobFailureTarget, fails)
	case in.allReportsHaveCondition(jobComplete, jobSuccessCriteriaMet):
		done := condition{reason: "CompletionsReached", message: "complete in " + in.clusterNames()}
		say(jobSuccessCriteriaMet, done)
		if ended && in.allReportsHaveCondition(jobComplete) {
			say(jobComplete, done)
		}
	case in.allReportsHaveCondition(jobSuspended):
		say(jobSuspended, condition{reason: "JobSuspended", message: "suspended in " + in.clusterNames()})
	case conditionsByType(statusOf(in.object))[jobSuspended] != nil:
		list = append(list, condition{conditionType: jobSuspended, status: statusFalse, reason: "JobResumed", message: "resumed in " + in.clusterNames(), timeField: "lastProbeTime"})
	}
	return list
}

// anyReportCondition finds the first cluster in which a condition of the Job is true.
func (in *aggregation) anyReportCondition(kind string) (condition, bool) {
	for i, row := range in.reports {
		if isConditionTrue(row.Status, kind) {
			c := conditionsByType(row.Status)[kind]
			return condition{reason: stringField(c, "reason"), message: in.withClusterName(i, stringField(c, "message"))}, true
		}
	}
	return condition{}, false
}

// allReportsHaveCondition tells whether in all clusters one of the conditions is true.
func (in *aggregation) allReportsHaveCondition(kinds ...string) bool {
	for _, row := range in.reports {
		is := false
		for _, kind := range kinds {
			is = is || isConditionTrue(row.Status, kind)
		}
		if !is {
			return false
		}
	}
	return len(in.reports) > 0
}
