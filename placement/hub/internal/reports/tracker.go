// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// historyWindow is for how long before now reports are remembered.
const historyWindow = stability.MaxWindow + undatedDelay + maxHeartbeatAge

// Queue is the work queue of the objects.
type Queue interface {
	Add(kinds.Key)
}

// Tracker has the reports of all clusters. It is fed by the events of the cache, because reconciliations may skip
// some. It is in memory only: a new leader relies on nothing that it has not received itself.
type Tracker struct {
	now func() time.Time

	mu       sync.Mutex
	clusters map[string]*cluster
	waiting  map[kinds.Key][]string // the clusters in which an object waits
	queue    Queue                  // nil before the controller runs
	since    time.Time              // of the last Reset
}

// cluster has the reports of one cluster.
type cluster struct {
	heartbeats heartbeats
	// histories by name of the Work, of those whose agent has read the object.
	histories map[string]stability.History
	// changing are the Works whose history has more than the report in force.
	changing map[string]bool
	// waiting are the objects to decide about again when the reports are complete up to a time.
	waiting map[kinds.Key]time.Time
}

// NewTracker returns a Tracker without reports.
func NewTracker(now func() time.Time) *Tracker {
	return &Tracker{now: now, clusters: map[string]*cluster{}, waiting: map[kinds.Key][]string{}, since: now()}
}

// SetQueue sets the queue that waiting objects are added to.
func (t *Tracker) SetQueue(q Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = q
}

// Reset forgets how long each report has been in force, and how far reports are complete. A new leader does so, and
// one whose API server was restored from a backup. The next heartbeats say it again.
func (t *Tracker) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.since = now
	for _, c := range t.clusters {
		c.heartbeats.until, c.heartbeats.dated = time.Time{}, false
		clear(c.changing)
		for work, h := range c.histories {
			last := h[len(h)-1]
			last.At = now
			c.histories[work] = stability.History{last}
		}
	}
}

// Since returns when the last Reset was: what was reported before is not known.
func (t *Tracker) Since() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// ObserveWork reads the report of a Work that the cache received now.
func (t *Tracker) ObserveWork(w *v1alpha1.Work) {
	name, ok := kinds.ClusterOfNamespace(w.Namespace)
	if !ok {
		return
	}
	report := scope.ReportOf(kinds.KeyOf(w.Spec.Source).GroupKind, w)
	t.mu.Lock()
	defer t.mu.Unlock()
	o, known := report.Observation(t.now())
	if !known {
		t.forgetWork(name, w.Name)
		return
	}
	c := t.cluster(name)
	c.add(w.Name, o)
}

func (t *Tracker) cluster(name string) *cluster {
	c := t.clusters[name]
	if c == nil {
		c = &cluster{histories: map[string]stability.History{}, changing: map[string]bool{}, waiting: map[kinds.Key]time.Time{}}
		t.clusters[name] = c
	}
	return c
}

// add adds a report to the history of a Work.
func (c *cluster) add(work string, o stability.Observation) {
	h := c.histories[work].Add(o, historyWindow)
	c.histories[work] = h
	if len(h) > 1 {
		c.changing[work] = true
	} else {
		delete(c.changing, work)
	}
}

// ForgetWork drops the history of a Work that was deleted.
func (t *Tracker) ForgetWork(w *v1alpha1.Work) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name, ok := kinds.ClusterOfNamespace(w.Namespace); ok {
		t.forgetWork(name, w.Name)
	}
}

func (t *Tracker) forgetWork(name, work string) {
	if c := t.clusters[name]; c != nil {
		delete(c.histories, work)
		delete(c.changing, work)
		t.dropEmpty(name)
	}
}

// dropEmpty drops a cluster of which nothing is known and for which no object waits.
func (t *Tracker) dropEmpty(name string) {
	if c := t.clusters[name]; c != nil && len(c.histories)+len(c.waiting) == 0 && c.heartbeats.renewed.IsZero() {
		delete(t.clusters, name)
	}
}

// ObserveLease reads a heartbeat that the cache received now. It queues the objects that wait for it.
func (t *Tracker) ObserveLease(l *coordinationv1.Lease) {
	name, ok := kinds.ClusterOfNamespace(l.Namespace)
	if !ok || l.Name != v1alpha1.HeartbeatLease {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c, now := t.cluster(name), t.now()
	if !c.heartbeats.observe(l, now) {
		return
	}
	for work := range c.changing { // drops what no window needs any more
		h := c.histories[work]
		last := h[len(h)-1]
		last.At = now
		c.add(work, last)
	}
	for key, until := range c.waiting {
		if !c.heartbeats.until.Before(until) {
			t.wake(key)
		}
	}
}

// ForgetLease drops the date of a cluster's reports, because its heartbeat was deleted.
func (t *Tracker) ForgetLease(l *coordinationv1.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, _ := kinds.ClusterOfNamespace(l.Namespace)
	if c := t.clusters[name]; c != nil && l.Name == v1alpha1.HeartbeatLease {
		c.heartbeats = heartbeats{}
		t.dropEmpty(name)
	}
}

// Of returns the reports of a Work, and the time up to which they are complete; zero while that is not known.
func (t *Tracker) Of(name, work string) (h stability.History, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clusters[name]
	if c == nil {
		return nil, time.Time{}
	}
	return c.histories[work], c.heartbeats.completeUntil(t.now())
}

// CompleteUntil returns, for each cluster with a heartbeat, the time up to which it has reported all changes. Where that is
// not known, it is when this hub began to observe reports.
func (t *Tracker) CompleteUntil() map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]time.Time, len(t.clusters))
	for name, c := range t.clusters {
		if c.heartbeats.renewed.IsZero() {
			continue
		}
		if all[name] = c.heartbeats.until; all[name].IsZero() {
			all[name] = t.since
		}
	}
	return all
}

// Wait queues an object when the reports of one of these clusters are complete up to a time. It replaces what the
// object has waited for; nil ends that.
func (t *Tracker) Wait(key kinds.Key, until map[string]time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopWaiting(key)
	for name, at := range until {
		c := t.cluster(name)
		c.waiting[key] = at
		t.waiting[key] = append(t.waiting[key], name)
	}
	for name, at := range until {
		if !t.clusters[name].heartbeats.until.Before(at) { // meanwhile
			t.wake(key)
			return
		}
	}
}

// wake queues an object that waits.
func (t *Tracker) wake(key kinds.Key) {
	t.stopWaiting(key)
	if t.queue != nil {
		t.queue.Add(key)
	}
}

func (t *Tracker) stopWaiting(key kinds.Key) {
	for _, name := range t.waiting[key] {
		delete(t.clusters[name].waiting, key)
		t.dropEmpty(name)
	}
	delete(t.waiting, key)
}
