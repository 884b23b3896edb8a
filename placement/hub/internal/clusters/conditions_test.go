// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// The condition Accepted has the admin's decision, and the commands for what is missing.
func TestAcceptedCondition(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason         string
		accepted       bool
		namespaceTaken bool
		want           string // reason of the condition
		message        string
	}{
		"accepted": {"An admin has accepted the Cluster.", true, false, v1alpha1.ReasonAccepted, ""},
		"waiting":  {"The message has the command.", false, false, v1alpha1.ReasonAwaitingAcceptance, "run: kubectl patchbay cluster accept east"},
		"taken":    {"Users of the namespace would have the agent's rights.", true, true, v1alpha1.ReasonNamespaceTaken, "kubectl annotate namespace cluster-east placement.patchbay.io/cluster-uid=uid-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "uid-1"}, Spec: v1alpha1.ClusterSpec{Accepted: tc.accepted}}
			c := acceptedCondition(cluster, Heartbeat{namespaceTaken: tc.namespaceTaken})
			isAccepted := c.Status == metav1.ConditionTrue
			if c.Reason != tc.want || isAccepted != (tc.want == v1alpha1.ReasonAccepted) || !strings.Contains(c.Message, tc.message) {
				t.Errorf("%s\ngot %+v, want the reason %s and the message %q", tc.reason, c, tc.want, tc.message)
			}
		})
	}
}

// The condition Reachable distinguishes a cluster that has objects from one that never had any.
func TestReachableCondition(t *testing.T) {
	t.Parallel()
	now := time.Unix(100_000, 0)
	fresh := Heartbeat{renewTime: now, observed: now, duration: 40 * time.Second}
	expired := Heartbeat{renewTime: now.Add(-time.Hour), observed: now.Add(-time.Hour), duration: 40 * time.Second}
	for name, tc := range map[string]struct {
		reason    string
		before    string // reason of the stored condition
		heartbeat Heartbeat
		want      string // reason of the condition
	}{
		"fresh":   {"The agent has reported in time.", v1alpha1.ReasonNeverJoined, fresh, v1alpha1.ReasonHeartbeatReceived},
		"expired": {"The agent has stopped reporting.", v1alpha1.ReasonHeartbeatReceived, expired, v1alpha1.ReasonHeartbeatLost},
		"deleted": {"A client has deleted the Lease of a cluster that has objects.", v1alpha1.ReasonHeartbeatReceived, Heartbeat{}, v1alpha1.ReasonHeartbeatLost},
		"new":     {"No agent has reported.", "", Heartbeat{}, v1alpha1.ReasonNeverJoined},
		"waiting": {"No agent has reported yet.", v1alpha1.ReasonNeverJoined, Heartbeat{}, v1alpha1.ReasonNeverJoined},
		"taken":   {"A heartbeat in another client's namespace proves nothing.", "", Heartbeat{renewTime: now, namespaceTaken: true}, v1alpha1.ReasonNamespaceTaken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
			if tc.before != "" {
				cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Reason: tc.before}}
			}
			c := reachableCondition(cluster, tc.heartbeat, now)
			if isReachable := c.Status == metav1.ConditionTrue; c.Reason != tc.want || isReachable != (tc.want == v1alpha1.ReasonHeartbeatReceived) {
				t.Errorf("%s\ngot %+v, want the reason %s", tc.reason, c, tc.want)
			}
		})
	}
}

// items returns an object in each of these phases.
func items(phases ...drainPhase) (found []drainItem) {
	for _, phase := range phases {
		i := drainItem{phase: phase, DrainBlocker: v1alpha1.DrainBlocker{Object: "Deployment shop/web"}}
		if phase >= phaseIgnored {
			i.Reason = v1alpha1.ReasonUnschedulable
		}
		found = append(found, i)
	}
	return found
}

// The condition Drained names what blocks a drain. It is True only if the agent reports that nothing is left.
func TestDrainedCondition(t *testing.T) {
	t.Parallel()
	now := time.Unix(100_000, 0)
	for name, tc := range map[string]struct {
		reason   string
		progress drainProgress
		late     bool
		status   metav1.ConditionStatus
		want     string // reason of the condition
		message  string
	}{
		"leaving": {
			"Objects are on their way.", drainProgress{items: items(phaseMoving), works: 2}, false,
			metav1.ConditionFalse, v1alpha1.ReasonDraining, "2 objects have not left yet",
		},
		"blocked": {
			"An object has no other place.", drainProgress{items: items(phaseBlocked)}, false,
			metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 of 1 objects cannot leave: Deployment shop/web (Unschedulable)",
		},
		"late": {
			"The admin wants to know at the deadline.", drainProgress{items: items(phaseWaiting)}, true,
			metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 objects have not left by spec.drain.deadline: Deployment shop/web",
		},
		"orphans": {
			"Objects of a lost Work still run.", drainProgress{appliedWorks: 3}, false,
			metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "3 AppliedWorks in the cluster have no Work at the hub",
		},
		"unknown": {
			"The agent is silent.", drainProgress{unknown: "the cluster does not report what it still has"}, false,
			metav1.ConditionUnknown, v1alpha1.ReasonAppliedWorksUnknown, "the cluster does not report what it still has",
		},
		"staying": {
			"What must not leave would be lost with the cluster.", drainProgress{items: items(phaseStaying, phaseMoving)}, false,
			metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 of 2 objects cannot leave: Deployment shop/web (Unschedulable)",
		},
		"ignored": {
			"A DaemonSet that may be in no other cluster is of no use without this one.",
			drainProgress{items: items(phaseIgnored), works: 1, appliedWorks: 1}, true,
			metav1.ConditionTrue, v1alpha1.ReasonDrained, "1 objects are for this cluster only: Deployment shop/web (Unschedulable)",
		},
		"ignored and orphans": {
			"Another object's record is left.", drainProgress{items: items(phaseIgnored), works: 1, appliedWorks: 2}, false,
			metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 AppliedWorks in the cluster have no Work at the hub",
		},
		"done": {"The cluster is empty.", drainProgress{}, true, metav1.ConditionTrue, v1alpha1.ReasonDrained, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deadline := metav1.NewTime(now.Add(time.Minute))
			if tc.late {
				deadline = metav1.NewTime(now)
			}
			cluster := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Drain: &v1alpha1.Drain{Mode: v1alpha1.DrainMove, Deadline: &deadline}}}
			c := tc.progress.condition(cluster, now)
			if c.Status != tc.status || c.Reason != tc.want || !strings.HasPrefix(c.Message, tc.message) {
				t.Errorf("%s\ngot %+v, want %s with the reason %s and the message %q", tc.reason, c, tc.status, tc.want, tc.message)
			}
		})
	}
}
