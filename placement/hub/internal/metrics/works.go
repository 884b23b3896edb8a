// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// workState is the state of a Work in one cluster.
type workState struct{ cluster, state, reason string }

// labelValues implements state.
func (s workState) labelValues() []string { return []string{s.cluster, s.state, s.reason} }

// workMetrics are the metrics of Works. Only one goroutine changes them.
type workMetrics struct {
	counts   *stateCounts[workState]
	behind   *worksBehind
	duration *prometheus.HistogramVec
	// unreported are the Works whose agent has not reported their last revision.
	unreported map[types.NamespacedName]unreportedWork
}

// unreportedWork is when this hub saw a revision of a Work first.
type unreportedWork struct {
	revision int64
	since    time.Time
}

// registerWorks registers the metrics of Works.
func registerWorks(r prometheus.Registerer) *workMetrics {
	m := &workMetrics{
		unreported: map[types.NamespacedName]unreportedWork{},
		behind:     newWorksBehind(),
		counts: newStateCounts[workState]("patchbay_hub_works",
			"Works by cluster, state and reason: applied, pending (the agent has not reported the last revision as applied), "+
				"blocked (the agent reports a reason that a retry does not remove) and removing. The reason is empty unless the Work is blocked; "+
				"it is Other when it is in no catalogue.",
			"cluster", "state", "reason"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "patchbay_hub_work_report_duration_seconds",
			Help:    "Time from a change of a Work until its agent reported the result (applied, blocked, removed). Changes from before this process led are not included.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"result"}),
	}
	r.MustRegister(m.counts, m.behind.count, m.behind.oldest, m.duration)
	return m
}

// observe counts a Work that was created, changed or deleted.
func (m *workMetrics) observe(old, now *v1alpha1.Work, existed bool, at time.Time) {
	m.counts.move(stateOf(old, workStateOf), stateOf(now, workStateOf))
	m.behind.observe(old, now, at)
	switch {
	case now == nil:
		delete(m.unreported, client.ObjectKeyFromObject(old))
		return
	case existed: // nobody knows since when
		return
	case old == nil || old.UID != now.UID || old.Spec.Revision != now.Spec.Revision:
		m.unreported[client.ObjectKeyFromObject(now)] = unreportedWork{now.Spec.Revision, at}
	}
	m.observeReport(now, at)
}

// observeReport measures how long the report on the last revision took.
func (m *workMetrics) observeReport(w *v1alpha1.Work, at time.Time) {
	key := client.ObjectKeyFromObject(w)
	written, ok := m.unreported[key]
	if !ok || w.Status.Revision < written.revision {
		return
	}
	state, _ := scope.StateOf(w)
	result := string(state)
	switch {
	case scope.IsRemoved(w):
		result = "removed"
	case state == scope.WorkPending || state == scope.WorkRemoving:
		return
	}
	m.duration.WithLabelValues(result).Observe(at.Sub(written.since).Seconds())
	delete(m.unreported, key)
}

// workStateOf returns the state of a Work.
func workStateOf(w *v1alpha1.Work) workState {
	cluster, _ := kinds.ClusterOfNamespace(w.Namespace)
	state, reason := scope.StateOf(w)
	return workState{cluster, string(state), boundedReason(reason)}
}

// otherReason stands for reasons that are in no catalogue: an agent must not add labels without bound.
const otherReason = "Other"

// boundedReason returns the reason of a blocked Work if it is in the catalogue, or one of Kubernetes.
func boundedReason(reason string) string {
	switch reason {
	case "", v1alpha1.ReasonConflict, v1alpha1.ReasonRefused, v1alpha1.ReasonTooLarge, v1alpha1.ReasonHubMismatch,
		v1alpha1.ReasonRecordLost, v1alpha1.ReasonRemovalBlocked,
		string(metav1.StatusReasonInvalid), string(metav1.StatusReasonBadRequest), string(metav1.StatusReasonNotFound),
		string(metav1.StatusReasonRequestEntityTooLarge):
		return reason
	}
	return otherReason
}
