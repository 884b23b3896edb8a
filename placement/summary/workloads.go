// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// deployment computes a Deployment's conditions from the sums in its status, as the
// controller in a cluster does from its own.
func (in *input) deployment(status map[string]any) error {
	desired := in.desired()
	unavailable, err := maxUnavailable(in.object, desired)
	if err != nil {
		return err
	}
	list := []condition{in.available(status, desired, unavailable), in.progressing(status, desired)}
	for i, row := range in.rows {
		if c := conditionsOf(row.Status)["ReplicaFailure"]; words(c, "status") == yes {
			list = append(list, condition{kind: "ReplicaFailure", status: yes, reason: words(c, "reason"), message: in.tell(i, words(c, "message"))})
			break
		}
	}
	for i := range list {
		list[i].also = "lastUpdateTime"
	}
	in.setConditions(status, list)
	return nil
}

// desired is how many replicas there are to be: what the object says, or more where
// clusters have a full set each. What a move adds for a while is not counted.
func (in *input) desired() int64 {
	replicas, ok, err := unstructured.NestedInt64(in.object.Object, "spec", "replicas")
	if !ok || err != nil {
		replicas = 1
	}
	var wanted int64
	for _, row := range in.rows {
		if row.Wanted != nil {
			wanted += int64(*row.Wanted)
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
	if words(strategy, "type") == "Recreate" || desired == 0 {
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

// available is the condition Available.
func (in *input) available(status map[string]any, desired, unavailable int64) condition {
	has := least(status, "availableReplicas")
	c := condition{kind: "Available", status: yes, reason: "MinimumReplicasAvailable"}
	if has < desired-unavailable {
		c.status, c.reason = no, "MinimumReplicasUnavailable"
	}
	c.message = fmt.Sprintf("%d of %d replicas are available in %s", has, desired, in.where())
	return c
}

// progressing is a Deployment's condition Progressing: a cluster that has given up says
// it for all, one that is paused after that, and it is done when all have done.
func (in *input) progressing(status map[string]any, desired int64) condition {
	for _, bad := range []string{no, maybe} {
		for i, row := range in.rows {
			c := conditionsOf(row.Status)["Progressing"]
			if words(c, "status") == bad && row.current(in.object) && !leaving(row) {
				return condition{kind: "Progressing", status: bad, reason: words(c, "reason"), message: in.tell(i, words(c, "message"))}
			}
		}
	}
	c := condition{kind: "Progressing", status: yes, reason: "ReplicaSetUpdated", message: "is progressing in " + in.where()}
	total := least(status, "replicas")
	if in.allCurrent() && total >= desired && least(status, "updatedReplicas") == total && least(status, "availableReplicas") == total {
		c.reason, c.message = "NewReplicaSetAvailable", "has successfully progressed in "+in.where()
	}
	return c
}

// leaving tells whether nothing is asked of a cluster: what fails there is in nobody's
// way.
func leaving(r Row) bool { return r.Asked != nil && *r.Asked == 0 }

// allCurrent tells whether all clusters speak of the present object.
func (in *input) allCurrent() bool {
	for _, row := range in.rows {
		if !row.current(in.object) {
			return false
		}
	}
	return true
}

// revisions gives a StatefulSet the names of its revisions, which differ as long as a
// roll-out goes on somewhere. Clusters name them on their own; the first one's stand
// for all.
func (in *input) revisions(status map[string]any) {
	for _, row := range in.rows {
		from, to := words(row.Status, "currentRevision"), words(row.Status, "updateRevision")
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
	jobSucceeds = "SuccessCriteriaMet"
	jobFails    = "FailureTarget"
)

// job completes the sums of a Job with times and conditions: it fails when it fails in
// any cluster, and is complete when it is in all. Indexes are each cluster's own and
// not told.
func job(in *input, status map[string]any) map[string]any {
	for i, row := range in.rows {
		if start := words(row.Status, "startTime"); start != "" && (i == 0 || status["startTime"] == nil || before(start, words(status, "startTime"))) {
			status["startTime"] = start
		}
	}
	if was := words(statusOf(in.object), "startTime"); was != "" {
		status["startTime"] = was // before conditions are decided: a Job that ends has one
	}
	in.setConditions(status, in.jobConditions(status))
	if holds(status, jobComplete) {
		latest(status, in.rows, "completionTime")
	}
	return keepJob(in.object, status)
}

// jobConditions decides what is said of a Job.
func (in *input) jobConditions(status map[string]any) []condition {
	ended := status["startTime"] != nil
	for _, field := range []string{"active", "ready", "terminating"} {
		ended = ended && least(status, field) == 0
	}
	var list []condition
	say := func(kind string, c condition) {
		c.kind, c.status, c.also = kind, yes, "lastProbeTime"
		list = append(list, c)
	}
	failed, isFailed := in.anyJob(jobFailed)
	fails, isFailing := in.anyJob(jobFails)
	switch {
	case isFailed:
		say(jobFails, failed)
		if ended {
			say(jobFailed, failed)
		}
	case isFailing:
		say(jobFails, fails)
	case in.allJobs(jobComplete, jobSucceeds):
		done := condition{reason: "CompletionsReached", message: "complete in " + in.where()}
		say(jobSucceeds, done)
		if ended && in.allJobs(jobComplete) {
			say(jobComplete, done)
		}
	case in.allJobs(jobSuspended):
		say(jobSuspended, condition{reason: "JobSuspended", message: "suspended in " + in.where()})
	case conditionsOf(statusOf(in.object))[jobSuspended] != nil:
		list = append(list, condition{kind: jobSuspended, status: no, reason: "JobResumed", message: "resumed in " + in.where(), also: "lastProbeTime"})
	}
	return list
}

// anyJob finds the first cluster in which a condition of the Job is true.
func (in *input) anyJob(kind string) (condition, bool) {
	for i, row := range in.rows {
		if holds(row.Status, kind) {
			c := conditionsOf(row.Status)[kind]
			return condition{reason: words(c, "reason"), message: in.tell(i, words(c, "message"))}, true
		}
	}
	return condition{}, false
}

// allJobs tells whether in all clusters one of the conditions is true.
func (in *input) allJobs(kinds ...string) bool {
	for _, row := range in.rows {
		is := false
		for _, kind := range kinds {
			is = is || holds(row.Status, kind)
		}
		if !is {
			return false
		}
	}
	return len(in.rows) > 0
}
