// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// lookOut judges the conditions (I9) while the test runs, until stop is called. What an API
// server that is away does not tell is left to the next look.
func (x *watcher) lookOut(w *world) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for next := time.NewTimer(lookEvery); ; {
			select {
			case <-ctx.Done():
				next.Stop()
				return
			case <-next.C:
			}
			began := time.Now()
			f, err := x.facts(ctx, w)
			next.Reset(max(lookEvery, lookShare*time.Since(began)))
			if err != nil || x.behind.Load() || time.Since(f.now) > oneMoment {
				x.untrue.since = nil
				continue
			}
			x.untrue.look(f.now, f.untrue())
		}
	}()
	return func() { cancel(); <-done }
}

// brokenReasons is I9 when a test has ended: the conditions that were untrue for a while in it,
// or that do not become true.
func (x *watcher) brokenReasons(ctx context.Context, w *world) ([]string, error) {
	for {
		f, err := x.facts(ctx, w)
		if err != nil {
			return nil, err
		}
		x.untrue.look(f.now, f.untrue())
		lasting := slices.ContainsFunc(slices.Collect(maps.Keys(x.untrue.since)), func(what string) bool { return x.untrue.lasts[what] == "" })
		if !lasting {
			return lines(x.untrue.lasts), nil
		}
		<-time.After(10 * poll)
	}
}

func lines(broken map[string]string) (list []string) {
	for _, what := range slices.Sorted(maps.Keys(broken)) {
		list = append(list, "I9: "+what+": "+broken[what])
	}
	return list
}

// untrue judges all conditions, and says why one is not true.
func (f *facts) untrue() map[string]string {
	found := map[string]string{}
	for _, s := range f.said() {
		why := "nobody has said how to judge that"
		if is := judged[s.says()]; is != nil {
			why = is(f, &s)
		} else if unjudged[s.says()] != "" {
			why = ""
		}
		if why != "" {
			found[s.of+" says "+s.says()] = why
		}
	}
	return found
}

// said are the conditions of all Clusters, and of what concerns the namespaces. What an agent says
// that does not report is left out: it cannot take it back.
func (f *facts) said() (all []said) {
	add := func(s said, conditions []metav1.Condition) {
		for _, s.Condition = range conditions {
			if s.cluster == nil || s.Type != v1alpha1.ConditionHubMismatch || f.alive(s.cluster.Name) {
				all = append(all, s)
			}
		}
	}
	for i := range f.clusters {
		add(said{of: "Cluster " + f.clusters[i].Name, cluster: &f.clusters[i]}, f.clusters[i].Status.Conditions)
	}
	for i := range f.placements {
		p := &f.placements[i]
		add(said{of: "Placement " + p.Namespace + "/" + p.Name, choice: &p.Spec.Clusters}, p.Status.Conditions)
	}
	for i := range f.everywhere {
		if p := &f.everywhere[i]; f.concerns("", p.Name) {
			add(said{of: "ClusterPlacement " + p.Name, choice: &p.Spec.Clusters}, p.Status.Conditions)
		}
	}
	for i := range f.customizations {
		if c := &f.customizations[i]; f.concerns(c.Namespace, c.Name) || f.concerns("", c.Name) {
			add(said{of: "Customization " + c.Namespace + "/" + c.Name, choice: &v1alpha1.ClusterChoice{}}, c.Status.Conditions)
		}
	}
	for i := range f.assignments {
		if a := &f.assignments[i]; f.concerns(a.Spec.Object.Namespace, a.Spec.Object.Name) {
			add(said{of: "Assignment " + a.Namespace + "/" + a.Name, assignment: a}, a.Status.Conditions)
		}
	}
	for i := range f.works {
		if w := &f.works[i]; f.concerns(w.Spec.Source.Namespace, w.Spec.Source.Name) && f.alive(clusterOf(w)) {
			f.saidOfWork(w, add)
		}
	}
	for cluster, records := range f.records {
		for i := range records {
			r, spec := &records[i], &records[i].Spec.Work
			if f.concerns(spec.Source.Namespace, spec.Source.Name) && spec.Removal == nil { // an order is answered in the Work
				add(said{of: "AppliedWork " + r.Name + " in " + cluster, work: &carried{
					cluster: cluster, name: r.Name, spec: spec, revision: r.Status.Revision, manifests: spec.Manifests,
				}}, r.Status.Conditions)
			}
		}
	}
	return all
}

// saidOfWork adds the conditions of a Work and of its manifests. Those of manifests are what was
// said before while the Work orders a removal, or is not carried out.
func (f *facts) saidOfWork(w *v1alpha1.Work, add func(said, []metav1.Condition)) {
	c := carried{cluster: clusterOf(w), name: w.Name, spec: &w.Spec, revision: w.Status.Revision, manifests: w.Spec.Manifests}
	for i := range w.Status.Manifests {
		c.uids = append(c.uids, w.Status.Manifests[i].UID)
	}
	add(said{of: "Work " + w.Namespace + "/" + w.Name, work: &c}, w.Status.Conditions)
	if w.Spec.Removal != nil || w.Status.Halted != nil || c.revision != w.Spec.Revision || len(c.uids) != len(c.manifests) {
		return
	}
	for i := range c.uids {
		one := c
		one.manifests, one.uids = c.manifests[i:i+1], c.uids[i:i+1]
		add(said{of: fmt.Sprintf("manifest %d of Work %s/%s", i, w.Namespace, w.Name), work: &one}, w.Status.Manifests[i].Conditions)
	}
}
