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

// Config configures the Reconciler. Metrics and Events are required.
type Config struct {
	// Metrics has the values of the metrics.
	Metrics *Metrics
	// Events gets Events about Services.
	Events EventRecorder
	// Ranges are the addresses that the cluster itself uses, which are not published; nil for none.
	Ranges Ranges
	// BatchPeriod is how long events of Pods are collected before their Services are reconciled, so
	// that a burst causes one write; 20 ms when zero.
	BatchPeriod time.Duration
	// Workers is how many Services are reconciled at a time; 8 when zero.
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

// EventRecorder makes Events; record.EventRecorder of client-go implements it.
type EventRecorder interface {
	// Event makes an Event on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}

// Ranges watches the addresses that the cluster itself uses.
type Ranges interface {
	// Get returns the ranges; the error says why they are not known yet.
	Get() (*network.ClusterRanges, error)
	// Changed yields a value after changes, to one reader.
	Changed() <-chan struct{}
}

const (
	defaultBatchPeriod = 20 * time.Millisecond
	defaultWorkers     = 8
	// staleRetryDelay is when a Service is first reconciled again after its cached slices were
	// older than the API server's. The delay doubles with each try, up to maxRetryDelay.
	staleRetryDelay = 30 * time.Millisecond
	// minRetryDelay and maxRetryDelay bound the delay between tries of a Service that fails.
	minRetryDelay, maxRetryDelay = 50 * time.Millisecond, 30 * time.Second
	// zoneBatchPeriod is how long changes of Nodes' zones are collected, because each makes all
	// Services reconcile.
	zoneBatchPeriod = time.Second
	// withheldRecheckPeriod is when a Service is reconciled again that has an address which another
	// Pod has too, or one that allowedClusterSubnets permit.
	withheldRecheckPeriod = time.Minute
)

// Add makes a manager run a Reconciler while it leads. The manager's client must read from the API
// server, and its cache must be configured with CacheByObject. Other packages cache DanmEps, and Nodes as
// metadata with the label of their zone.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	cfg = cfg.withDefaults()
	r := newReconciler(cfg, m.GetCache(), m.GetClient(), cfg.Metrics)
	if err := addIndexes(ctx, m.GetCache()); err != nil {
		return err
	}
	c, err := controller.New("services", m, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: cfg.Workers,
		RateLimiter: newRateLimiter(minRetryDelay),
	})
	if err != nil {
		return fmt.Errorf("make controller of Services: %w", err)
	}
	watches := &watchHandlers{cached: m.GetCache(), ranges: cfg.Ranges, batchPeriod: cfg.BatchPeriod}
	for _, s := range watches.sources(m.GetCache()) {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watch for Services: %w", err)
		}
	}
	return nil
}

// newRateLimiter delays retries of a request by first, and then twice as long each time.
func newRateLimiter(first time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, maxRetryDelay)
}

// Metrics are the values of the leader; in another replica the metrics have none.
type Metrics struct {
	writes *prometheus.CounterVec
	stale  prometheus.Counter
}

// RegisterMetrics registers all metrics of the package.
func RegisterMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_service_writes_total",
			Help: "Writes of EndpointSlices and Endpoints of Services on networks, by resource and verb.",
		}, []string{"resource", "verb"}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_service_write_conflicts_total",
			Help: "Reconciliations that the API server rejected because they were planned from an old version. They are retried.",
		}),
	}
	r.MustRegister(m.writes, m.stale)
	return m
}
