// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Metrics has the hub's metrics.
type Metrics struct {
	clusters    *clusterMetrics
	works       *workMetrics
	assignments *assignmentMetrics
}

// Register registers all metrics of the hub. They have no values before Start.
func Register(r prometheus.Registerer) *Metrics {
	return &Metrics{clusters: registerClusters(r), works: registerWorks(r), assignments: registerAssignments(r)}
}

// Sources are what the metrics are made from. All are required.
type Sources struct {
	// Informers of Clusters, Works and Assignments.
	Informers cache.Informers
	// Heartbeats returns when the hub saw the last heartbeat of each cluster.
	Heartbeats func() map[string]time.Time
	// ReportedUntil returns the time up to which each cluster's agent has reported all changes.
	ReportedUntil func() map[string]time.Time
	// Now is the clock.
	Now func() time.Time
}

// Start counts the objects of the informers from now on, and all that exist. It returns at once.
func (m *Metrics) Start(ctx context.Context, s Sources) error {
	m.clusters.start(s)
	m.works.behind.start(s.Now)
	if err := observe(ctx, s.Informers, m.clusters.observe); err != nil {
		return err
	}
	err := observe(ctx, s.Informers, func(old, now *v1alpha1.Work, existed bool) { m.works.observe(old, now, existed, s.Now()) })
	if err != nil {
		return err
	}
	return observe(ctx, s.Informers, func(old, now *v1alpha1.Assignment, _ bool) { m.assignments.observe(old, now, s.Now()) })
}

// observe calls changed for each object of a kind that exists, and for each change, one after the other.
// old is nil for a new object, now for one that was deleted, and existed is true for those that were
// there at first.
func observe[T any, P interface {
	*T
	client.Object
}](ctx context.Context, informers cache.Informers, changed func(old, now P, existed bool)) error {
	informer, err := informers.GetInformer(ctx, P(new(T)), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T for metrics: %w", *new(T), err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, existed bool) {
			if now, ok := o.(P); ok {
				changed(nil, now, existed)
			}
		},
		UpdateFunc: func(before, after any) {
			old, wasOne := before.(P)
			if now, ok := after.(P); ok && wasOne {
				changed(old, now, false)
			}
		},
		DeleteFunc: func(o any) {
			if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			if old, ok := o.(P); ok {
				changed(old, nil, false)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T for metrics: %w", *new(T), err)
	}
	return nil
}

// state is the state of an object, as values of labels.
type state interface {
	comparable
	labelValues() []string
}

// stateCounts is a gauge that counts objects by state. States without an object have no value. Only one
// goroutine changes it.
type stateCounts[S state] struct {
	*prometheus.GaugeVec
	counts map[S]int
}

func newStateCounts[S state](name, help string, labels ...string) *stateCounts[S] {
	return &stateCounts[S]{
		GaugeVec: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels), counts: map[S]int{},
	}
}

// move counts an object in another state. nil is the state of no object.
func (c *stateCounts[S]) move(from, to *S) {
	if from != nil && to != nil && *from == *to {
		return
	}
	if to != nil {
		c.add(*to, 1)
	}
	if from != nil {
		c.add(*from, -1)
	}
}

func (c *stateCounts[S]) add(s S, n int) {
	if c.counts[s] += n; c.counts[s] == 0 {
		delete(c.counts, s)
		c.DeleteLabelValues(s.labelValues()...)
		return
	}
	c.WithLabelValues(s.labelValues()...).Set(float64(c.counts[s]))
}

// stateOf returns the state of an object, nil for none.
func stateOf[O any, S state](o *O, of func(*O) S) *S {
	if o == nil {
		return nil
	}
	s := of(o)
	return &s
}
