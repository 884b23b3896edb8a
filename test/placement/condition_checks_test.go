// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// conditionChecks has a truth for each condition, as says writes it, that can be judged from objects alone.
var conditionChecks = map[string]conditionCheck{
	"Accepted=True, Accepted":              isAccepted,
	"Accepted=False, AwaitingAcceptance":   isAccepted,
	"Reachable=True, HeartbeatReceived":    hasHeartbeat,
	"Reachable=False, NeverJoined":         neverSeen,
	"Reachable=False, HeartbeatLost":       heartbeatExpired,
	"Drained=True, Drained":                drained,
	"Drained=False, Draining":              draining,
	"Drained=False, DrainBlocked":          draining,
	"Drained=Unknown, AppliedWorksUnknown": noReport,
	"DeclaredLost=True, DeclaredLost":      declaredLost,
	"DeclaredLost=False, ReportedSince":    reportedSince,
	"HubMismatch=False, AsExpected":        matches,
	"HubMismatch=True, HubMismatch":        mismatches,

	"Valid=True, Valid":           valid,
	"Valid=False, UnknownCluster": unknownCluster,

	"Placed=True, AsExpected":             withSource(placedAsAsked),
	"Placed=True, NoClustersRequested":    noClustersRequested,
	"Placed=False, NoPolicy":              withSource(noPolicy),
	"Placed=False, NoClusterSelected":     withSource(noClusterSelected),
	"Placed=False, UnknownCluster":        unknownCluster,
	"Placed=False, PolicyTie":             withSource(policyTie),
	"Placed=False, InvalidAnnotation":     withSource(invalidAnnotation),
	"Placed=False, VolumesRefused":        withSource(volumesRefused),
	"Placed=False, RunsOnce":              withSource(runsOnce),
	"Placed=False, TooManyTargets":        tooManyTargets,
	"Placed=False, AssignmentLost":        withSource(assignmentLost),
	"Placed=False, Unschedulable":         withSource(unschedulable),
	"Placed=False, WaitingForCluster":     withSource(waitingForCluster),
	"MoveBlocked=True, Stalled":           moving,
	"MoveBlocked=False, Progressing":      moving,
	"MoveBlocked=False, AsExpected":       moved,
	"TrafficMerged=True, AsExpected":      trafficMerged,
	"TrafficMerged=False, TrafficRefused": trafficRefused,
	"Rendered=True, AsExpected":           rendered,
	"Rendered=False, TooLarge":            withSource(tooLarge),
	"Rendered=False, InvalidRule":         invalidRule,
	"Rendered=False, NotPlaceable":        withSource(tokenStays),

	"Applied=True, AsExpected":             applied,
	"Applied=False, Progressing":           progressing,
	"Applied=False, Refused":               refused,
	"Applied=False, Conflict":              conflicts,
	"Applied=False, DeletedInCluster":      gone,
	"Applied=False, RecordLost":            recordLost,
	"Applied=False, RemovalBlocked":        removalBlocked,
	"Applied=False, Removed":               removed,
	"Applied=False, HubMismatch":           mismatches,
	"Applied=False, TooLarge":              workTooLarge,
	"Applied=False, Invalid":               unapplied,
	"Applied=False, BadRequest":            unapplied,
	"Applied=False, NotFound":              unapplied,
	"Applied=False, RequestEntityTooLarge": unapplied,
	"Ready=True, AsExpected":               ready,
	"Ready=False, Progressing":             unready,
	"Orphaned=True, Orphaned":              orphaned,
}

// uncheckedConditions says of the other conditions why nobody can judge them so.
var uncheckedConditions = map[string]string{
	"Event, MoveBlocked":                      "it is the reason of an Event, and the condition MoveBlocked is judged",
	"Event, RolledBack":                       "it is the reason of an Event; the tests of moves judge the replicas that it counts",
	"status.drain, Pinned":                    "it is the reason of an entry of status.drain; TestDrainProgress judges these",
	"status.drain, Required":                  "it is the reason of an entry of status.drain; TestDrainProgress judges these",
	"Approved=True, ClusterAccepted":          "it is a condition of a certificate request, which is in no snapshot",
	"Accepted=False, NamespaceTaken":          "who has made a namespace is in no object",
	"Reachable=False, NamespaceTaken":         "who has made a namespace is in no object",
	"Rendered=False, NamespaceMissing":        "the namespace may be there again, and its Works not yet",
	"Placed=False, InvalidSelector":           "the schema lets no such selector in; of what it lets in only the hub's own reading tells",
	"Placed=False, InvalidReplicas":           "package divide alone tells which bounds contradict each other",
	"Valid=False, NotPlaceable":               "which kinds stay at the hub is the hub's own list",
	"TrafficMerged=False, NotStretched":       "package traffic alone tells what proves a segment",
	"TrafficMerged=False, AddressConflict":    "package traffic alone tells which addresses a cluster may have",
	"TrafficMerged=False, EndpointsTruncated": "what is left out is in no object",
	"Valid=False, InvalidRule":                "only the renderer tells whether a rule compiles, and what all of a namespace cost",
}

// conditionCheck says from objects alone why a condition is untrue; "" when it is true.
type conditionCheck func(*snapshot, *reportedCondition) string

// reportedCondition is one condition, and what it is said of: one of the fields below of is there.
type reportedCondition struct {
	metav1.Condition
	subject    string // such as "Assignment ns/web"
	cluster    *v1alpha1.Cluster
	choice     *v1alpha1.ClusterChoice // of a policy
	assignment *v1alpha1.Assignment
	workState  *workState
}

// workState is what a cluster was told to have: by a Work, one of its manifests, or an AppliedWork.
type workState struct {
	cluster, name string
	spec          *v1alpha1.WorkSpec
	revision      int64 // that was carried out
	manifests     []v1alpha1.Manifest
	uids          []types.UID // in the cluster, by manifest, if they are reported
}

// key is the condition in the words of judged.
func (s *reportedCondition) key() string { return fmt.Sprintf("%s=%s, %s", s.Type, s.Status, s.Reason) }

// conditionTimeout is how long a condition may be behind what it is about: long enough for a machine
// that runs other tests too, and for a watch whose API server was away. client-go tries that again after up to a minute.
const conditionTimeout = 75 * time.Second

// falseConditions are the conditions that were untrue each time they were judged, and since when.
type falseConditions struct {
	firstSeen map[string]time.Time
	lasting   map[string]string // those that have lasted too long, with why
}

// observe takes in what is untrue at a time.
func (u *falseConditions) observe(at time.Time, now map[string]string) {
	since := map[string]time.Time{}
	for what, why := range now {
		first, before := u.firstSeen[what]
		if !before {
			first = at
		}
		if since[what] = first; at.Sub(first) >= conditionTimeout {
			if u.lasting == nil {
				u.lasting = map[string]string{}
			}
			u.lasting[what] = fmt.Sprintf("%s (for %s until %s)", why, at.Sub(first).Round(time.Second), at.Format("15:04:05"))
		}
	}
	u.firstSeen = since
}

const (
	// checkInterval is how often conditions are judged while a test runs, and lookShare how much of the
	// time that may take: a look costs the API servers something, and many tests run at once.
	checkInterval, checkShare = 5 * time.Second, 20
	// maxSnapshotTime is how long a look may take whose facts are of one time. On a machine that takes
	// longer, programs are behind, too.
	maxSnapshotTime = 2 * time.Second
)
