// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/apply"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/metrics"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/term"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// eventSource is the component of the hub's Events.
const eventSource = "patchbay-hub"

// Config configures the controllers.
type Config struct {
	// Workers is how many objects are reconciled at a time. Default: 8.
	Workers int
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Metrics has the values of the metrics. Default: metrics that nobody reads.
	Metrics *metrics.Metrics

	probeDuration, preflightWait, stableDefault time.Duration // for tests
}

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, 8)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Metrics == nil {
		c.Metrics = metrics.Register(prometheus.NewRegistry())
	}
	c.probeDuration, c.preflightWait = cmp.Or(c.probeDuration, probeDuration), cmp.Or(c.preflightWait, preflightWait)
	c.stableDefault = cmp.Or(c.stableDefault, stability.DefaultWindow)
	return c
}

// Add makes a manager run the hub's controllers while it leads. The manager must have been made with
// Options.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	cfg = cfg.withDefaults()
	cached, direct := m.GetCache(), m.GetClient()
	events, err := newRecorder(ctx, m)
	if err != nil {
		return err
	}
	check, err := newPreflight(m, cfg.probeDuration)
	if err != nil {
		return err
	}
	registry, capacity, drains := &kinds.Registry{}, limits.NewCapacity(cfg.Now), limits.NewDrains()
	heartbeats, tracker := clusters.NewHeartbeats(cached, direct, cfg.Now), reports.NewTracker(cfg.Now)
	lead := &leadership{
		cached: cached, direct: direct, now: cfg.Now, signer: &term.Signer{}, capacity: capacity, heartbeats: heartbeats, reports: tracker,
		awaitPreflight: func(ctx context.Context) error { return check.await(ctx, cfg.preflightWait) },
	}
	reader, err := scope.NewReader(ctx, cached, direct, registry, heartbeats, scope.ReaderOptions{
		Reports: tracker, DefaultStable: cfg.stableDefault, Now: cfg.Now,
	})
	if err != nil {
		return err
	}
	expectations, secrets := apply.NewExpectations(direct, cfg.Now), &apply.Secrets{Direct: direct}
	objects, err := controller.NewTyped("placement", m, controller.TypedOptions[kinds.Key]{
		MaxConcurrentReconciles: cfg.Workers, RateLimiter: newRateLimiter[kinds.Key](),
		Reconciler: &objectReconciler{
			cached: cached, kinds: registry, leadership: lead, reader: reader, capacity: capacity, drains: drains, expectations: expectations,
			reports:     tracker,
			objects:     &apply.Objects{Direct: direct},
			assignments: &apply.Assignments{Direct: direct, Events: events, Expectations: expectations},
			works:       &apply.Works{Direct: direct, Secrets: secrets, Signer: lead.signer, Expectations: expectations, Restored: lead.restored},
			secrets:     secrets,
			events:      events,
			now:         cfg.Now,
		},
	})
	if err != nil {
		return fmt.Errorf("make the controller of objects: %w", err)
	}
	if err := watchDependencies(objects, cached, registry, drains, tracker, capacity.Rooms()); err != nil {
		return err
	}
	if err := watchReports(ctx, cached, tracker, capacity.Rooms()); err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make discovery client: %w", err)
	}
	clusterReconciler := &clusters.Reconciler{
		Cached: cached, Direct: direct, Events: events, Now: cfg.Now,
		Heartbeats: heartbeats, Capacity: capacity, Drains: drains, Lead: lead.ensure,
	}
	for name, add := range map[string]func() error{
		"preflight":    func() error { return m.Add(check) },
		"kinds":        func() error { return m.Add(newKindWatcher(cached, registry, objects, d)) },
		"clusters":     func() error { return clusterReconciler.SetupWithManager(m, controllerOptions()) },
		"certificates": func() error { return (&certificateApprover{cached: cached, direct: direct}).setup(m) },
		"metrics": func() error {
			return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
				return cfg.Metrics.Start(ctx, metrics.Sources{
					Informers: cached, Heartbeats: heartbeats.Observed, ReportedUntil: tracker.CompleteUntil, Now: cfg.Now,
				})
			}))
		},
		"policies": func() error {
			return (&policyValidator{cached: cached, direct: direct, events: events, kinds: registry}).setup(m)
		},
	} {
		if err := add(); err != nil {
			return fmt.Errorf("add the controller of %s: %w", name, err)
		}
	}
	return nil
}

// watchReports feeds a Tracker with all events of Works and heartbeats.
func watchReports(ctx context.Context, informers cache.Informers, tracker *reports.Tracker, rooms *limits.Rooms) error {
	if err := watchEach(ctx, informers, &v1alpha1.Work{}, tracker.ObserveWork, tracker.ForgetWork); err != nil {
		return err
	}
	if err := watchEach(ctx, informers, &v1alpha1.Cluster{}, rooms.Observe, rooms.Forget); err != nil {
		return err
	}
	return watchEach(ctx, informers, &coordinationv1.Lease{}, tracker.ObserveLease, tracker.ForgetLease)
}

// watchEach calls changed for each object that is added or changed, and deleted for each that is deleted.
func watchEach[O client.Object](ctx context.Context, informers cache.Informers, kind O, changed, deleted func(O)) error {
	informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if object, ok := o.(O); ok {
				changed(object)
			}
		},
		UpdateFunc: func(_, o any) {
			if object, ok := o.(O); ok {
				changed(object)
			}
		},
		DeleteFunc: func(o any) {
			if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			if object, ok := o.(O); ok {
				deleted(object)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	return nil
}

// newRecorder starts a recorder of Events that stops when ctx ends.
func newRecorder(ctx context.Context, m manager.Manager) (record.EventRecorder, error) {
	c, err := typedcorev1.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make client for Events: %w", err)
	}
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Events("")})
	context.AfterFunc(ctx, b.Shutdown)
	return b.NewRecorder(m.GetScheme(), corev1.EventSource{Component: eventSource}).
		WithLogger(logr.FromContextOrDiscard(ctx)), nil
}

// The first and the longest pause between retries.
const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = time.Minute
)

// newRateLimiter limits retries to one a minute, so that the hub recovers soon after its API server
// does. The longest pause of controller-runtime's default is 17 minutes.
func newRateLimiter[K comparable]() workqueue.TypedRateLimiter[K] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, longestRetry)
}

func controllerOptions() controller.Options {
	return controller.Options{RateLimiter: newRateLimiter[reconcile.Request]()}
}
