// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config is what the watcher of Services needs to know. Registry and Events are
// required.
type Config struct {
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// Events makes Events on Services.
	Events Recorder
	// Ranges are what the cluster itself uses, and no Service leads to; nil for nothing.
	Ranges Ranges
	// BatchPeriod is how long what happens to Pods is collected before their Services
	// are looked at, so that a burst is one write; 20 ms when zero.
	BatchPeriod time.Duration
	// Workers is how many Services are worked at a time; 8 when zero.
	Workers int
}

func (c Config) withDefaults() Config {
	if c.BatchPeriod == 0 {
		c.BatchPeriod = defaultBatchPeriod
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	return c
}

// Recorder makes Events; a Kubernetes EventRecorder is one.
type Recorder interface {
	// Event reports on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}

// Ranges follow what the cluster itself uses.
type Ranges interface {
	// Get returns the ranges; the error says why they are not known yet.
	Get() (*network.ClusterRanges, error)
	// Changed yields a value after changes, to one reader.
	Changed() <-chan struct{}
}

const (
	defaultBatchPeriod = 20 * time.Millisecond
	defaultWorkers     = 8
	// staleRetryDelay is when a Service is first looked at whose cached slices are older than
	// the ones that are there; then twice as long each time, up to mostDelay.
	staleRetryDelay = 30 * time.Millisecond
	// minRetryDelay and mostDelay are between tries of what fails.
	minRetryDelay, maxRetryDelay = 50 * time.Millisecond, 30 * time.Second
	// zoneBatchPeriod collects Nodes that change their zone: all Services are looked at.
	zoneBatchPeriod = time.Second
	// withheldRecheckPeriod is when a Service is looked at again that has an address which another
	// Pod has too, or one that allowedClusterSubnets permit.
	withheldRecheckPeriod = time.Minute
)

// Add makes a manager run a Reconciler while it leads. The manager's client must read
// from the API server, and its cache be made with Cached; DanmEps and Nodes (as
// metadata, with the label of their zone) are cached by others.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	r := &Reconciler{
		cfg: cfg.withDefaults(), cached: m.GetCache(), direct: m.GetClient(), metrics: newMetrics(cfg.Registry), deduplicator: &eventDeduplicator{},
		networks: &networkCache{metadata: m.GetCache(), direct: m.GetClient()}, staleBackoff: newRateLimiter(staleRetryDelay), tenantSubnets: &tenantSubnetCache{direct: m.GetClient()},
	}
	if err := addIndexes(ctx, m.GetCache()); err != nil {
		return err
	}
	c, err := controller.New("services", m, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: r.cfg.Workers,
		RateLimiter: newRateLimiter(minRetryDelay),
	})
	if err != nil {
		return fmt.Errorf("make controller of Services: %w", err)
	}
	for _, s := range r.watchSources(m.GetCache()) {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watch for Services: %w", err)
		}
	}
	return nil
}

// newRateLimiter tries the same request after a delay that doubles each time.
func newRateLimiter(first time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, maxRetryDelay)
}

// metrics are those of the leader.
type metrics struct {
	writes *prometheus.CounterVec
	stale  prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_service_writes_total",
			Help: "Writes of what Services on networks have, by resource and verb.",
		}, []string{"resource", "verb"}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_service_write_conflicts_total",
			Help: "Writes that the API server refused since they were planned from an older version; they are planned again.",
		}),
	}
	r.MustRegister(m.writes, m.stale)
	return m
}
