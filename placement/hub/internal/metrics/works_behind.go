// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// worksBehind has the Works whose agent has not reported on their present revision, by cluster and name. Its gauges
// are read at each scrape: a Work that waits becomes older without any event.
type worksBehind struct {
	count, oldest *scrapedGauge

	mu        sync.Mutex
	byCluster map[string]map[string]time.Time // since when
}

func newWorksBehind() *worksBehind {
	return &worksBehind{
		byCluster: map[string]map[string]time.Time{},
		count: newScrapedGauge("patchbay_works_behind",
			"Works of a cluster whose agent has not reported on their present revision. Clusters without Works have no value."),
		oldest: newScrapedGauge("patchbay_works_behind_oldest_seconds",
			"For how long the agent of a cluster has been behind with a Work, without a report on an earlier revision, at most, as far as this process has seen it; "+
				"0 if it is behind with none. Clusters without Works have no value."),
	}
}

// start reads the gauges from now on.
func (b *worksBehind) start(now func() time.Time) {
	count := func() map[string]float64 {
		return b.summarize(func(works map[string]time.Time) (n float64) {
			for _, since := range works {
				if !since.IsZero() {
					n++
				}
			}
			return n
		})
	}
	oldest := func() map[string]float64 {
		at := now()
		return b.summarize(func(works map[string]time.Time) (seconds float64) {
			for _, since := range works {
				if !since.IsZero() {
					seconds = max(seconds, at.Sub(since).Seconds())
				}
			}
			return seconds
		})
	}
	b.count.read.Store(&count)
	b.oldest.read.Store(&oldest)
}

// summarize returns a number for each cluster.
func (b *worksBehind) summarize(number func(works map[string]time.Time) float64) map[string]float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	values := make(map[string]float64, len(b.byCluster))
	for cluster, works := range b.byCluster {
		values[cluster] = number(works)
	}
	return values
}

// observe reads a Work that was created, changed or deleted.
func (b *worksBehind) observe(old, now *v1alpha1.Work, at time.Time) {
	w := now
	if w == nil {
		w = old
	}
	cluster, ok := kinds.ClusterOfNamespace(w.Namespace)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	works := b.byCluster[cluster]
	if works == nil {
		works = map[string]time.Time{}
		b.byCluster[cluster] = works
	}
	since, tracked := works[w.Name]
	switch {
	case now == nil:
		delete(works, w.Name)
		if len(works) == 0 {
			delete(b.byCluster, cluster)
		}
	case now.Status.Revision >= now.Spec.Revision:
		works[w.Name] = time.Time{}
	// A later order does not make the agent less late, but its report on an earlier one does.
	case !tracked || since.IsZero() || old == nil || old.UID != now.UID || old.Status.Revision < now.Status.Revision:
		works[w.Name] = at
	}
}
