// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/relist"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/controllers"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/debugapi"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/metrics"
)

// newManager makes the manager with the hub's controllers and servers. The API server must serve the kinds.
func newManager(ctx context.Context, cfg *rest.Config, o *options, kinds *app.KindChecker) (manager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	// The number of workers bounds the requests, and the API server has priority and fairness: a client-side
	// rate limit would only add latency.
	cfg.QPS = -1
	relist.WrapConfig(cfg)
	opts, err := controllers.Options(ctx)
	if err != nil {
		return nil, err
	}
	opts.Cache.DefaultWatchErrorHandler = kinds.HandleWatchError
	timeout := gracefulShutdownTimeout
	opts.Logger = logr.FromContextOrDiscard(ctx)
	opts.LeaderElection = o.leaderElect
	opts.LeaderElectionID = leaseName
	opts.LeaderElectionNamespace = o.namespace
	opts.LeaderElectionReleaseOnCancel = true // the process ends with the manager
	opts.GracefulShutdownTimeout = &timeout
	m, err := manager.New(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	registry := prometheus.NewRegistry()
	if err := controllers.Add(ctx, m, controllers.Config{Workers: o.workers, Metrics: metrics.Register(registry)}); err != nil {
		return nil, fmt.Errorf("set up the hub: %w", err)
	}
	if err := addDebugAPI(m, o); err != nil {
		return nil, err
	}
	health, err := app.ListenHealth(o.healthAddress, app.AllReady(kinds.CheckKnown, func(ctx context.Context) error {
		return app.CheckSynced(ctx, m.GetCache().WaitForCacheSync)
	}))
	if err != nil {
		return nil, err
	}
	// controller-runtime has a registry of its own.
	scrapes, err := securemetrics.Listen(o.secureMetrics, m.GetConfig(), prometheus.Gatherers{registry, crmetrics.Registry}, m.GetLogger())
	if err != nil {
		return nil, err
	}
	shutdownTimeout := app.HealthShutdownTimeout
	// A manager.Server starts before the caches are synced, and on replicas that do not lead.
	probes := &manager.Server{Name: "health", Server: health.Server, Listener: health.Listener, ShutdownTimeout: &shutdownTimeout}
	if err := errors.Join(m.Add(probes), m.Add(scrapes)); err != nil {
		return nil, fmt.Errorf("add health checks and metrics: %w", err)
	}
	return m, nil
}

// addDebugAPI adds the debug API, or what removes an earlier registration.
func addDebugAPI(m manager.Manager, o *options) error {
	if o.debugAddress == "" {
		if err := m.Add(debugapi.Unregister{Direct: m.GetClient()}); err != nil {
			return fmt.Errorf("add the removal of the debug API: %w", err)
		}
		return nil
	}
	c, err := o.debugConfig()
	if err != nil {
		return err
	}
	return debugapi.Add(m, c)
}

// RegisterMetrics registers the metrics that a hub serves beside those of controller-runtime. The page
// docs/reference/metrics.md is made from them.
func RegisterMetrics(r prometheus.Registerer) { metrics.Register(r) }

// leaseName is the name of the Lease for leader election.
const leaseName = "patchbay-hub"

// gracefulShutdownTimeout is how long reconciliations may run after ctx has ended.
const gracefulShutdownTimeout = 15 * time.Second
