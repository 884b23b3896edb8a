// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// start is when the tests start, by the clock of the hub.
var start = time.Unix(1_000_000, 0)

// hub has the metrics of a hub with fake watches.
type hub struct {
	t          *testing.T
	registry   *prometheus.Registry
	informers  *informertest.FakeInformers
	now        time.Time
	heartbeats map[string]time.Time
	reported   map[string]time.Time
}

func newHub(t *testing.T) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	h := &hub{t: t, registry: prometheus.NewRegistry(), informers: &informertest.FakeInformers{Scheme: scheme}, now: start}
	m := Register(h.registry)
	err := m.Start(t.Context(), Sources{
		Informers: h.informers, Now: func() time.Time { return h.now },
		Heartbeats:    func() map[string]time.Time { return h.heartbeats },
		ReportedUntil: func() map[string]time.Time { return h.reported },
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// change reports the change of an object to the watches. before is nil for a new object, after for one
// that was deleted.
func (h *hub) change(before, after client.Object) {
	h.t.Helper()
	o := after
	if o == nil {
		o = before
	}
	informer, err := h.informers.FakeInformerFor(h.t.Context(), o)
	if err != nil {
		h.t.Fatal(err)
	}
	switch {
	case before == nil:
		informer.Add(after)
	case after == nil:
		informer.Delete(before)
	default:
		informer.Update(before, after)
	}
}

// expect compares the series of a metric, without its help.
func (h *hub) expect(reason, name string, want ...string) {
	h.t.Helper()
	var got []string
	families, err := h.registry.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetGauge().GetValue()
			if m.GetHistogram() != nil {
				value = m.GetHistogram().GetSampleSum()
			}
			got = append(got, strings.Join(labels, ",")+" "+formatValue(value))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		h.t.Errorf("%s: %s:\ngot\n%s\nwant\n%s", reason, name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// formatValue formats a value without an exponent.
func formatValue(v float64) string {
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// work returns a Work at a revision, of which the agent has reported one with the reason of Applied.
func work(cluster string, revision, reported int64, reason string) *v1alpha1.Work {
	w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-" + cluster, Name: "w", UID: "1"}}
	w.Spec.Revision, w.Status.Revision = revision, reported
	if reported > 0 {
		c := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason}
		if reason == v1alpha1.ReasonAsExpected {
			c.Status = metav1.ConditionTrue
		}
		w.Status.Conditions = []metav1.Condition{c}
	}
	return w
}

// removed returns a Work with an order to remove its object.
func removed(w *v1alpha1.Work) *v1alpha1.Work {
	w.Spec.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete}
	return w
}

// An operator sees where Works are stuck, and why. A state without Works has no series, so that an alert
// ends when its Works are gone.
func TestWorkStates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		work   *v1alpha1.Work
		want   string
	}{
		{"No agent has seen it.", work("a", 1, 0, ""), "cluster=a,reason=,state=pending 1"},
		{"The agent has applied an earlier revision.", work("a", 2, 1, v1alpha1.ReasonAsExpected), "cluster=a,reason=,state=pending 1"},
		{"The agent retries.", work("a", 1, 1, v1alpha1.ReasonProgressing), "cluster=a,reason=,state=pending 1"},
		{"The cluster has the present revision.", work("a", 2, 2, v1alpha1.ReasonAsExpected), "cluster=a,reason=,state=applied 1"},
		{"The agent may not write the object.", work("a", 1, 1, v1alpha1.ReasonRefused), "cluster=a,reason=Refused,state=blocked 1"},
		{"The cluster's API server rejects it.", work("a", 1, 1, "Invalid"), "cluster=a,reason=Invalid,state=blocked 1"},
		{"A webhook in the cluster made up a reason.", work("a", 1, 1, "x-7f3a"), "cluster=a,reason=Other,state=blocked 1"},
		{"The agent has not removed it.", removed(work("a", 2, 1, v1alpha1.ReasonAsExpected)), "cluster=a,reason=,state=removing 1"},
		{"A finalizer blocks the removal.", removed(work("a", 2, 1, v1alpha1.ReasonRemovalBlocked)), "cluster=a,reason=RemovalBlocked,state=blocked 1"},
	} {
		h := newHub(t)
		h.change(nil, tc.work)
		h.expect(tc.reason, "patchbay_hub_works", tc.want)
		h.change(tc.work, work("a", 9, 9, v1alpha1.ReasonAsExpected))
		h.change(nil, work("b", 1, 1, v1alpha1.ReasonAsExpected))
		h.expect(tc.reason, "patchbay_hub_works", "cluster=a,reason=,state=applied 1", "cluster=b,reason=,state=applied 1")
		h.change(work("a", 9, 9, v1alpha1.ReasonAsExpected), nil)
		h.expect(tc.reason, "patchbay_hub_works", "cluster=b,reason=,state=applied 1")
	}
}

// The time until a report starts when the hub sees its change of the Work, and ends with the report on
// that revision.
func TestWorkReportDuration(t *testing.T) {
	t.Parallel()
	const name = "patchbay_hub_work_report_duration_seconds"
	for _, tc := range []struct {
		reason string
		report *v1alpha1.Work
		want   []string
	}{
		{"The agent has applied the revision.", work("a", 2, 2, v1alpha1.ReasonAsExpected), []string{"result=applied 3"}},
		{"The agent refuses it.", work("a", 2, 2, v1alpha1.ReasonRefused), []string{"result=blocked 3"}},
		{"The agent retries.", work("a", 2, 2, v1alpha1.ReasonProgressing), nil},
		{"The report is on an earlier revision.", work("a", 2, 1, v1alpha1.ReasonRefused), nil},
		{"The agent has removed the object.", removed(work("a", 2, 2, v1alpha1.ReasonRemoved)), []string{"result=removed 3"}},
		{"The Work is gone before the report.", nil, nil},
	} {
		h := newHub(t)
		before, changed := work("a", 1, 1, v1alpha1.ReasonAsExpected), work("a", 2, 1, v1alpha1.ReasonAsExpected)
		h.change(before, changed)
		h.now = start.Add(3 * time.Second)
		if tc.report == nil {
			h.change(changed, nil)
			h.expect(tc.reason, name)
			continue
		}
		h.change(changed, tc.report)
		h.expect(tc.reason, name, tc.want...)
		h.now = start.Add(time.Hour)
		h.change(tc.report, tc.report)
		h.expect("A report is measured once.", name, tc.want...)
	}
}

// A new leader does not know since when the Works that it finds wait.
func TestWorkReportDurationOfEarlierLeader(t *testing.T) {
	t.Parallel()
	m := registerWorks(prometheus.NewRegistry())
	found := work("a", 2, 1, v1alpha1.ReasonAsExpected)
	m.observe(nil, found, true, start)
	m.observe(found, work("a", 2, 2, v1alpha1.ReasonAsExpected), false, start.Add(time.Second))
	if n := testutil.CollectAndCount(m.duration); n != 0 {
		t.Errorf("got %d series, want none", n)
	}
	if len(m.unreported) > 0 {
		t.Errorf("got %v, want no Work to wait for", m.unreported)
	}
}

// assignment returns an Assignment with conditions.
func assignment(conditions ...metav1.Condition) *v1alpha1.Assignment {
	a := &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	a.Status.Conditions = conditions
	return a
}

// An operator sees how many objects are not where their policies want them, and why.
func TestAssignmentStates(t *testing.T) {
	t.Parallel()
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	placed := condition(v1alpha1.ConditionPlaced, metav1.ConditionTrue, v1alpha1.ReasonAsExpected)
	rendered := condition(v1alpha1.ConditionRendered, metav1.ConditionTrue, v1alpha1.ReasonAsExpected)
	noMove := condition(v1alpha1.ConditionMoveBlocked, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	notPlaced := condition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonUnschedulable)
	notRendered := condition(v1alpha1.ConditionRendered, metav1.ConditionFalse, v1alpha1.ReasonInvalidRule)
	for _, tc := range []struct {
		reason     string
		assignment *v1alpha1.Assignment
		want       string
	}{
		{"The hub has just created it.", assignment(), "reason=,state=unknown 1"},
		{"All is as requested.", assignment(placed, rendered, noMove), "reason=,state=placed 1"},
		{"No cluster has room.", assignment(notPlaced, rendered, noMove), "reason=Unschedulable,state=not_placed 1"},
		{"A Customization fails.", assignment(placed, notRendered, noMove), "reason=InvalidRule,state=not_rendered 1"},
		{
			"A move waits.", assignment(placed, rendered, condition(v1alpha1.ConditionMoveBlocked, metav1.ConditionTrue, v1alpha1.ReasonStalled)),
			"reason=Stalled,state=move_blocked 1",
		},
		{"It moves.", moving(placed, rendered, condition(v1alpha1.ConditionMoveBlocked, metav1.ConditionFalse, v1alpha1.ReasonProgressing)), "reason=,state=moving 1"},
		{
			"Its move waits.", moving(placed, rendered, condition(v1alpha1.ConditionMoveBlocked, metav1.ConditionTrue, v1alpha1.ReasonStalled)),
			"reason=Stalled,state=move_blocked 1",
		},
		{"An object is counted once.", assignment(notPlaced, notRendered, noMove), "reason=Unschedulable,state=not_placed 1"},
	} {
		h := newHub(t)
		h.change(nil, tc.assignment)
		h.expect(tc.reason, "patchbay_objects", tc.want)
		h.change(tc.assignment, nil)
		h.expect(tc.reason, "patchbay_objects")
	}
}

// moving returns an Assignment that moves from a to b by its first decision.
func moving(conditions ...metav1.Condition) *v1alpha1.Assignment {
	a := settled(1, conditions...)
	a.Spec.Targets = append(a.Spec.Targets, v1alpha1.Target{Cluster: "a", State: v1alpha1.TargetDraining})
	return a
}

// settled returns an Assignment that is in b by a decision of this number.
func settled(number int64, conditions ...metav1.Condition) *v1alpha1.Assignment {
	a := assignment(conditions...)
	a.Spec.Decision.Number, a.Spec.Decision.LastChangeTime = number, &metav1.MicroTime{Time: start}
	a.Spec.Targets = []v1alpha1.Target{{Cluster: "b", State: v1alpha1.TargetActive}}
	return a
}

// A move lasts from the decision until the object has left the other clusters.
func TestMoveDuration(t *testing.T) {
	t.Parallel()
	const name = "patchbay_moves_seconds"
	undated := settled(1)
	undated.Spec.Decision.LastChangeTime = nil
	removed := settled(1)
	removed.Spec.Targets[0].State = v1alpha1.TargetRemoving
	empty := settled(1)
	empty.Spec.Targets = nil
	var none []string
	for _, tc := range []struct {
		reason        string
		before, after *v1alpha1.Assignment
		want          []string
	}{
		{"The object has left the other cluster.", moving(), settled(1), []string{" 90"}},
		{"It still moves.", moving(), moving(), none},
		{"A later decision makes it stay: it has not moved.", moving(), settled(2), none},
		{"It was placed, not moved.", settled(1), settled(1), none},
		{"It is removed from its only cluster.", removed, empty, none},
		{"Its removal everywhere ends a move.", moving(), empty, none},
		{"The Assignment does not say since when.", moving(), undated, none},
	} {
		h := newHub(t)
		h.change(nil, tc.before)
		h.now = start.Add(90 * time.Second)
		h.change(tc.before, tc.after)
		h.expect(tc.reason, name, tc.want...)
	}
}

// A cluster is behind with Works that it has not reported on, and since when it is does not depend on later
// revisions.
func TestWorksBehind(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a1, a2 := work("a", 1, 0, ""), work("a", 2, 0, "")
	done, other := work("a", 2, 2, v1alpha1.ReasonAsExpected), work("a", 1, 1, v1alpha1.ReasonRefused)
	other.Name, other.UID = "other", "2"
	again := work("a", 3, 2, v1alpha1.ReasonAsExpected)
	for _, step := range []struct {
		reason        string
		before, after *v1alpha1.Work
		count, oldest []string
	}{
		{"It has an order that it has not reported on.", nil, a1, []string{"cluster=a 1"}, []string{"cluster=a 0"}},
		{"A later order does not make it less late.", a1, a2, []string{"cluster=a 1"}, []string{"cluster=a 10"}},
		{"It refuses another one: that is a report.", nil, other, []string{"cluster=a 1"}, []string{"cluster=a 20"}},
		{"It has reported.", a2, done, []string{"cluster=a 0"}, []string{"cluster=a 0"}},
		{"It is behind again, from now on.", done, again, []string{"cluster=a 1"}, []string{"cluster=a 0"}},
		{"The Work is deleted.", again, nil, []string{"cluster=a 0"}, []string{"cluster=a 0"}},
		{"It has no Works.", other, nil, nil, nil},
	} {
		h.change(objectOf(step.before), objectOf(step.after))
		h.expect(step.reason, "patchbay_works_behind", step.count...)
		h.expect(step.reason, "patchbay_works_behind_oldest_seconds", step.oldest...)
		h.now = h.now.Add(10 * time.Second)
	}
}

// objectOf returns a Work as an object; nil for none.
func objectOf(w *v1alpha1.Work) client.Object {
	if w == nil {
		return nil
	}
	return w
}

// The lag of an agent grows from the time up to which its reports are complete, and ends with its Cluster.
func TestAgentLag(t *testing.T) {
	t.Parallel()
	const name = "patchbay_agent_lag_seconds"
	h := newHub(t)
	h.heartbeats = map[string]time.Time{"a": start, "b": start}
	h.reported = map[string]time.Time{"a": start.Add(-2 * time.Second), "b": start.Add(time.Second), "left": start}
	h.expect("b's clock is ahead, and the Lease of a Cluster that has left is still there.", name, "cluster=a 2", "cluster=b 0")
	h.now = start.Add(time.Minute)
	h.expect("Neither reports.", name, "cluster=a 62", "cluster=b 59")
}

// cluster returns a Cluster with one condition.
func cluster(kind string, status metav1.ConditionStatus, reason string) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	c.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason}}
	return c
}

// A cluster's conditions are series of the cluster only as long as it has them, and an agent cannot add
// others.
func TestClusterConditions(t *testing.T) {
	t.Parallel()
	const name = "patchbay_hub_cluster_condition"
	h := newHub(t)
	reachable := cluster(v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonHeartbeatReceived)
	lost := cluster(v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonHeartbeatLost)
	odd := cluster(v1alpha1.ConditionHubMismatch, metav1.ConditionTrue, "x-7f3a")
	other := cluster("x-7f3a", metav1.ConditionTrue, v1alpha1.ReasonHubMismatch)
	for _, step := range []struct {
		reason        string
		before, after client.Object
		want          []string
	}{
		{"It reports.", nil, reachable, []string{"cluster=a,condition=Reachable,reason=HeartbeatReceived 1"}},
		{"It does not report any more.", reachable, lost, []string{"cluster=a,condition=Reachable,reason=HeartbeatLost 0"}},
		{"Its agent made up a reason.", lost, odd, []string{"cluster=a,condition=HubMismatch,reason=Other 1"}},
		{"Its agent made up a condition.", odd, other, nil},
		{"It is back.", other, reachable, []string{"cluster=a,condition=Reachable,reason=HeartbeatReceived 1"}},
		{"It left the inventory.", reachable, nil, nil},
	} {
		h.change(step.before, step.after)
		h.expect(step.reason, name, step.want...)
	}
}

// The age of the last report of each cluster is known, also of one that does not report any more.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	const name = "patchbay_hub_cluster_last_heartbeat_timestamp_seconds"
	h := newHub(t)
	h.expect("No cluster has joined.", name)
	h.heartbeats = map[string]time.Time{"a": start, "b": start.Add(1500 * time.Millisecond)}
	h.expect("Two clusters report.", name, "cluster=a 1000000", "cluster=b 1000001.5")
	delete(h.heartbeats, "a")
	h.expect("One has left the inventory.", name, "cluster=b 1000001.5")
	if n, err := testutil.GatherAndCount(follower()); n != 0 || err != nil {
		t.Errorf("a hub that does not lead: got %d series and error %v, want none", n, err)
	}
}

// follower returns the metrics of a hub that does not lead.
func follower() *prometheus.Registry {
	r := prometheus.NewRegistry()
	Register(r)
	return r
}
