// SPDX-License-Identifier: Apache-2.0

package summary

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
