// SPDX-License-Identifier: Apache-2.0

package summary

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
