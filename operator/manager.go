// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	danmv1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/operator/internal/controllers"
)

// leaseName is the Lease for leader election.
const leaseName = "patchbay-operator"

// gracefulShutdownTimeout bounds the shutdown of all parts. The Pod's grace period is longer.
const gracefulShutdownTimeout = 15 * time.Second

// newManager wires the operator. Nothing runs yet.
func newManager(ctx context.Context, cfg *rest.Config, o *options) (manager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // one object after the other: the API server has priority and fairness
	kinds, err := app.NewKindChecker(cfg, v1alpha1.SchemeGroupVersion(), "deployments/operator/crds", "Installation")
	if err != nil {
		return nil, err
	}
	kinds.Log = logr.FromContextOrDiscard(ctx)
	opts, err := managerOptions(ctx, o)
	if err != nil {
		return nil, err
	}
	opts.Cache.DefaultWatchErrorHandler = kinds.HandleWatchError
	m, err := manager.New(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	if err := controllers.Add(ctx, m); err != nil {
		return nil, fmt.Errorf("set up the controller of Installations: %w", err)
	}
	synced := func(ctx context.Context) error { return app.CheckSynced(ctx, m.GetCache().WaitForCacheSync) }
	health, err := app.ListenHealth(o.healthAddress, app.AllReady(kinds.CheckKnown, synced))
	if err != nil {
		return nil, err
	}
	// controller-runtime has a registry of its own.
	scrapes, err := securemetrics.Listen(o.secureMetrics, m.GetConfig(), prometheus.Gatherers{metrics.Registry}, m.GetLogger())
	if err != nil {
		return nil, err
	}
	drain := app.HealthShutdownTimeout
	for _, part := range []manager.Runnable{
		// A manager.Server starts before the caches are filled, so that /readyz can name them.
		&manager.Server{Name: "health", Server: health.Server, Listener: health.Listener, ShutdownTimeout: &drain},
		scrapes,
	} {
		if err := m.Add(part); err != nil {
			return nil, fmt.Errorf("add health checks and metrics: %w", err)
		}
	}
	return m, nil
}

// managerOptions configures leader election, caches and the client.
func managerOptions(ctx context.Context, o *options) (manager.Options, error) {
	scheme, err := newScheme()
	if err != nil {
		return manager.Options{}, err
	}
	drain, skip := gracefulShutdownTimeout, true
	byObject, err := controllers.CacheByObject()
	if err != nil {
		return manager.Options{}, err
	}
	return manager.Options{
		Scheme:      scheme,
		Logger:      logr.FromContextOrDiscard(ctx),
		BaseContext: func() context.Context { return ctx },
		NewCache:    app.NewCache(ctx),
		// A read that uses the cache by accident fails.
		Cache: cache.Options{ReaderFailOnMissingInformer: true, ByObject: byObject},
		// The client reads from the API server; the controller reads from the cache explicitly.
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache = nil
			return client.New(cfg, opts)
		},
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // securemetrics serves them
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // safe, as the process ends when the manager has stopped
		GracefulShutdownTimeout:       &drain,
		// Tests run several managers in one process.
		Controller: config.Controller{SkipNameValidation: &skip},
	}, nil
}

// newScheme returns the kinds that the operator reads or writes as typed objects.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, danmv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	return scheme, nil
}
