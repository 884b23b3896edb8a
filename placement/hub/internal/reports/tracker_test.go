// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// trackerAt is a Tracker whose clock the test sets.
type trackerAt struct {
	*Tracker

	now time.Time
}

func newTrackerAt() *trackerAt {
	t := &trackerAt{now: start}
	t.Tracker = NewTracker(func() time.Time { return t.now })
	return t
}

// report observes that this many replicas of a Work are available in east.
func (t *trackerAt) report(second int, work string, available int32) {
	t.now = start.Add(seconds(second))
	t.ObserveWork(workWith(work, available, metav1.ConditionTrue))
}

// beat observes a heartbeat of east that mentions no change.
func (t *trackerAt) beat(second int) {
	t.now = start.Add(seconds(second))
	t.ObserveLease(beat{renewed: second, delay: "0s"}.lease())
}

func workWith(name string, available int32, applied metav1.ConditionStatus) *v1alpha1.Work {
	raw := fmt.Appendf(nil, `{"availableReplicas":%d,"replicas":%[1]d}`, available)
	return &v1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + "east", Name: name},
		Spec:       v1alpha1.WorkSpec{Revision: 1, Source: v1alpha1.ObjectReference{Group: "apps", Kind: "Deployment"}},
		Status: v1alpha1.WorkStatus{
			Revision: 1, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: applied, Reason: "Applied"}},
			Manifests: []v1alpha1.ManifestStatus{{Ready: available == 5, Status: &runtime.RawExtension{Raw: raw}}},
		},
	}
}

// available returns how many replicas all reports of the last 10 seconds say.
func (t *trackerAt) available(work string) int32 {
	history, until := t.Of("east", work)
	return history.Sample(until, seconds(10)).Available
}

func TestTrackerCountsWhatLasts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		steps  func(tr *trackerAt)
		want   int32
	}{
		"one report": {"the replicas may fail at once", func(tr *trackerAt) { tr.beat(0); tr.beat(10); tr.report(15, "web", 5); tr.beat(20) }, 0},
		"confirmed":  {"a heartbeat says that nothing has changed", func(tr *trackerAt) { tr.beat(0); tr.beat(10); tr.report(15, "web", 5); tr.beat(20); tr.beat(30) }, 5},
		"fails meanwhile": {
			"one report of the time says less", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.report(22, "web", 1)
				tr.report(23, "web", 5)
				tr.beat(30)
			}, 1,
		},
		"repeated": {
			"equal reports are one report", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.report(19, "web", 5)
				tr.beat(20)
			}, 5,
		},
		"heartbeats end": {
			"what was known minutes ago says nothing", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.beat(20)
				tr.now = start.Add(seconds(111))
			}, 0,
		},
		"heartbeats come back": {
			"the replicas were available all the time", func(tr *trackerAt) { tr.report(0, "web", 5); tr.beat(0); tr.beat(10); tr.beat(20); tr.beat(600) }, 5,
		},
		"unread": {
			"an agent that cannot read the object repeats an old status", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.now = start.Add(seconds(11))
				tr.ObserveWork(workWith("web", 5, metav1.ConditionFalse))
				tr.beat(30)
			}, 0,
		},
		"deleted": {
			"a Work of the same name is another one", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.ForgetWork(workWith("web", 5, metav1.ConditionTrue))
				tr.report(15, "web", 5)
				tr.beat(20)
			}, 0,
		},
		"new leader": {
			"it relies on what it has received itself", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.beat(20)
				tr.Reset()
				tr.beat(21)
			}, 0,
		},
		"new leader goes on": {
			"the reports have lasted again", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.beat(20)
				tr.Reset()
				tr.beat(30)
			}, 5,
		},
		"heartbeat deleted": {
			"the cluster's namespace was emptied", func(tr *trackerAt) {
				tr.report(0, "web", 5)
				tr.beat(0)
				tr.beat(10)
				tr.beat(20)
				tr.ForgetLease(beat{}.lease())
			}, 0,
		},
		"other object": {"each object has its own reports", func(tr *trackerAt) { tr.report(0, "api", 5); tr.beat(0); tr.beat(10); tr.beat(20) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrackerAt()
			tr.beat(-10)
			tc.steps(tr)
			if got := tr.available("web"); got != tc.want {
				t.Errorf("%s: got %d available replicas, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// Settled Works need one report each, and what is deleted needs none.
func TestTrackerForgets(t *testing.T) {
	t.Parallel()
	tr := newTrackerAt()
	for second := range 20 {
		tr.report(second, "web", int32(second))
		tr.beat(second)
	}
	c := tr.clusters["east"]
	if got := len(c.histories["web"]); got != 20 {
		t.Fatalf("got %d reports while they change, want 20", got)
	}
	tr.beat(19 + int(historyWindow.Seconds()))
	if got := len(c.histories["web"]); got != 1 || len(c.changing) != 0 {
		t.Errorf("got %d reports and %d changing Works at rest, want 1 and none", got, len(c.changing))
	}
	tr.Wait(keyOf("web"), map[string]time.Time{"east": tr.now.Add(time.Hour), "gone": tr.now.Add(time.Hour)})
	tr.Wait(keyOf("web"), nil)
	tr.ForgetWork(workWith("web", 5, metav1.ConditionTrue))
	tr.ForgetLease(beat{}.lease())
	if len(tr.clusters)+len(tr.waiting) != 0 {
		t.Errorf("got %v and %v after the end of all, want none", tr.clusters, tr.waiting)
	}
}

func keyOf(name string) kinds.Key {
	return kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: name}
}

// queued has the objects that a Tracker has queued.
type queued []string

// Add implements Queue.
func (q *queued) Add(k kinds.Key) { *q = append(*q, k.Name) }

// A heartbeat queues the objects that wait for it, once.
func TestTrackerWakes(t *testing.T) {
	t.Parallel()
	tr, q := newTrackerAt(), &queued{}
	tr.SetQueue(q)
	expect := func(what string, want ...string) {
		t.Helper()
		slices.Sort(*q)
		if !slices.Equal(*q, want) {
			t.Errorf("%s: got %q queued, want %q", what, *q, want)
		}
		*q = nil
	}
	tr.beat(-10)
	tr.beat(0)
	tr.Wait(keyOf("soon"), map[string]time.Time{"east": start.Add(seconds(10)), "west": start.Add(seconds(5))})
	tr.Wait(keyOf("later"), map[string]time.Time{"east": start.Add(seconds(15))})
	tr.Wait(keyOf("never"), map[string]time.Time{"east": start.Add(seconds(5))})
	tr.Wait(keyOf("never"), nil)
	tr.Wait(keyOf("replaced"), map[string]time.Time{"east": start.Add(seconds(5))})
	tr.Wait(keyOf("replaced"), map[string]time.Time{"west": start.Add(seconds(5))})
	expect("before the heartbeat")
	tr.beat(10)
	expect("first heartbeat", "soon")
	tr.beat(20)
	expect("second heartbeat", "later")
	tr.beat(30)
	expect("third heartbeat")
	tr.Wait(keyOf("meanwhile"), map[string]time.Time{"east": start.Add(seconds(25))})
	expect("a heartbeat that came while the object was decided", "meanwhile")
}

// Events, reconciliations and a change of leaders come at the same time.
func TestTrackerIsConcurrent(t *testing.T) {
	t.Parallel()
	tr := NewTracker(time.Now)
	tr.SetQueue(&lockedQueue{})
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 200 {
				work := fmt.Sprint("web", i%5)
				switch (worker + i) % 8 {
				case 0, 1:
					tr.ObserveWork(workWith(work, int32(i%6), metav1.ConditionTrue))
				case 2, 3:
					tr.ObserveLease(beat{renewed: i, delay: "0s"}.lease())
				case 4:
					tr.ForgetWork(workWith(work, 0, metav1.ConditionTrue))
				case 5:
					tr.Wait(keyOf(work), map[string]time.Time{"east": start, "west": start})
				case 6:
					tr.Reset()
				default:
					history, until := tr.Of("east", work)
					history.Sample(until, time.Second)
				}
			}
		})
	}
	all.Wait()
}

type lockedQueue struct {
	mu    sync.Mutex
	added int
}

// Add implements Queue.
func (q *lockedQueue) Add(kinds.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added++
}

// The hub knows how far the reports of each cluster are complete, also when that is too long ago for a move.
func TestCompleteUntil(t *testing.T) {
	t.Parallel()
	tracker := newTrackerAt()
	expect := func(reason string, want map[string]time.Time) {
		t.Helper()
		if got := tracker.CompleteUntil(); !maps.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%s got %v, want %v", reason, got, want)
		}
	}
	tracker.report(0, "web", 5)
	expect("A cluster without a heartbeat.", nil)
	tracker.beat(1)
	expect("One heartbeat may be old: since the hub observes reports.", map[string]time.Time{"east": start})
	tracker.beat(2)
	tracker.beat(3)
	expect("Its heartbeats have dates.", map[string]time.Time{"east": start.Add(seconds(3))})
	tracker.now = start.Add(seconds(3600))
	expect("They have ended for an hour.", map[string]time.Time{"east": start.Add(seconds(3))})
	tracker.Reset()
	expect("A new leader knows nothing.", map[string]time.Time{"east": start.Add(seconds(3600))})
}
