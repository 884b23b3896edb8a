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

// judged has a truth for each condition, as says writes it, that can be judged from objects alone.
var judged = map[string]truth{
	"Accepted=True, Accepted":       accepted,
	"Accepted=False, Waiting":       accepted,
	"Reachable=True, Heartbeat":     heartbeat,
	"Reachable=False, NeverSeen":    neverSeen,
	"Reachable=False, Silent":       silent,
	"Drained=True, Drained":         drained,
	"Drained=False, Draining":       draining,
	"Drained=False, DrainBlocked":   draining,
	"Drained=Unknown, NoReport":     noReport,
	"HubMismatch=False, Settled":    matches,
	"HubMismatch=True, HubMismatch": mismatches,

	"Valid=True, Valid":           valid,
	"Valid=False, UnknownCluster": unknownCluster,

	"Placed=True, Settled":             of(placedAsAsked),
	"Placed=True, NoClustersRequested": noClustersRequested,
	"Placed=False, NoPolicy":           of(noPolicy),
	"Placed=False, NoClusterSelected":  of(noClusterSelected),
	"Placed=False, UnknownCluster":     unknownCluster,
	"Placed=False, PolicyTie":          of(policyTie),
	"Placed=False, InvalidAnnotation":  of(invalidAnnotation),
	"Placed=False, VolumesRefused":     of(volumesRefused),
	"Placed=False, TooManyTargets":     tooManyTargets,
	"Placed=False, AssignmentLost":     of(assignmentLost),
	"Placed=False, Unschedulable":      of(unschedulable),
	"Placed=False, WaitingForCluster":  of(waitingForCluster),
	"MoveBlocked=True, Waiting":        moving,
	"MoveBlocked=False, Progressing":   moving,
	"MoveBlocked=False, Settled":       moved,
	"Rendered=True, Settled":           rendered,
	"Rendered=False, TooLarge":         of(tooLarge),
	"Rendered=False, InvalidRule":      invalidRule,
	"Rendered=False, NotPlaceable":     of(tokenStays),

	"Applied=True, Settled":                applied,
	"Applied=False, Progressing":           progressing,
	"Applied=False, Refused":               refused,
	"Applied=False, Conflict":              conflicts,
	"Applied=False, Gone":                  gone,
	"Applied=False, RecordLost":            recordLost,
	"Applied=False, RemovalBlocked":        removalBlocked,
	"Applied=False, Ordered":               removed,
	"Applied=False, HubMismatch":           mismatches,
	"Applied=False, TooLarge":              workTooLarge,
	"Applied=False, Invalid":               unapplied,
	"Applied=False, BadRequest":            unapplied,
	"Applied=False, NotFound":              unapplied,
	"Applied=False, RequestEntityTooLarge": unapplied,
	"Ready=True, Settled":                  ready,
	"Ready=False, Progressing":             unready,
	"Orphaned=True, Orphaned":              orphaned,
}

// unjudged says of the other conditions why nobody can judge them so.
var unjudged = map[string]string{
	"Accepted=False, NamespaceTaken":   "who has made a namespace is in no object",
	"Reachable=False, NamespaceTaken":  "who has made a namespace is in no object",
	"Rendered=False, NamespaceMissing": "the namespace may be there again, and its Works not yet",
	"Placed=False, InvalidSelector":    "the schema lets no such selector in; of what it lets in only the hub's own reading tells",
	"Placed=False, InvalidReplicas":    "package divide alone tells which bounds contradict each other",
	"Valid=False, NotPlaceable":        "which kinds stay at the hub is the hub's own list",
	"Valid=False, InvalidRule":         "only the renderer tells whether a rule compiles, and what all of a namespace cost",
}

// truth says from objects alone why a condition is untrue; "" when it is true.
type truth func(*facts, *said) string

// said is one condition, and what it is said of: one of the fields below of is there.
type said struct {
	metav1.Condition
	of         string // such as "Assignment ns/web"
	cluster    *v1alpha1.Cluster
	choice     *v1alpha1.ClusterChoice // of a policy
	assignment *v1alpha1.Assignment
	work       *carried
}

// carried is what a cluster was told to have: by a Work, one of its manifests, or an AppliedWork.
type carried struct {
	cluster, name string
	spec          *v1alpha1.WorkSpec
	revision      int64 // that was carried out
	manifests     []v1alpha1.Manifest
	uids          []types.UID // in the cluster, by manifest, if they are reported
}

// says is the condition in the words of judged.
func (s *said) says() string { return fmt.Sprintf("%s=%s, %s", s.Type, s.Status, s.Reason) }

// slow is how long a condition may be behind what it is about.
const slow = 20 * time.Second

// untruths are the conditions that were untrue each time they were judged, and since when.
type untruths struct {
	since map[string]time.Time
	lasts map[string]string // those that have lasted too long, with why
}

// look takes in what is untrue at a time.
func (u *untruths) look(at time.Time, now map[string]string) {
	since := map[string]time.Time{}
	for what, why := range now {
		first, before := u.since[what]
		if !before {
			first = at
		}
		if since[what] = first; at.Sub(first) >= slow {
			if u.lasts == nil {
				u.lasts = map[string]string{}
			}
			u.lasts[what] = fmt.Sprintf("%s (for %s until %s)", why, at.Sub(first).Round(time.Second), at.Format("15:04:05"))
		}
	}
	u.since = since
}

const (
	// lookEvery is how often conditions are judged while a test runs, and lookShare how much of the
	// time that may take: a look costs the API servers something, and many tests run at once.
	lookEvery, lookShare = 5 * time.Second, 20
	// oneMoment is how long a look may take whose facts are of one time. On a machine that takes
	// longer, programs are behind, too.
	oneMoment = 2 * time.Second
)
