// SPDX-License-Identifier: Apache-2.0

// Package manager starts and stops the manager of a program that consists of controllers. It is apart from internal/app,
// because the node daemon and the agent have no manager, and should not have its code.
package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/patchbay-cni/patchbay/internal/app"
)

// gracefulShutdownTimeout bounds the shutdown of all parts. The Pod's grace period is longer.
const gracefulShutdownTimeout = 15 * time.Second

// Election is the leader election of a program.
type Election struct {
	// Enabled is whether only the holder of the Lease acts.
	Enabled bool
	// Lease and Namespace name the Lease.
	Lease, Namespace string
}

// Options returns what the programs have in common, without a scheme. The cache has nothing yet.
func Options(ctx context.Context, e Election) crmanager.Options {
	drain, skip := gracefulShutdownTimeout, true
	return crmanager.Options{
		Logger:      logr.FromContextOrDiscard(ctx),
		BaseContext: func() context.Context { return ctx },
		NewCache:    app.NewCache(ctx),
		// A read that uses the cache by accident fails, instead of watching all objects of a kind.
		Cache: cache.Options{ReaderFailOnMissingInformer: true},
		// The client reads from the API server; parts that use the cache read from it explicitly.
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache = nil
			return client.New(cfg, opts)
		},
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // securemetrics serves them
		LeaderElection:                e.Enabled,
		LeaderElectionID:              e.Lease,
		LeaderElectionNamespace:       e.Namespace,
		LeaderElectionReleaseOnCancel: true, // safe, as the process ends when the manager has stopped
		GracefulShutdownTimeout:       &drain,
		// Tests run several managers in one process.
		Controller: config.Controller{SkipNameValidation: &skip},
	}
}

// AddServers adds the server of health checks, and other parts that every replica has, such as that of metrics.
func AddServers(m crmanager.Manager, health *app.HealthServer, others ...crmanager.Runnable) error {
	drain := app.HealthShutdownTimeout
	// A manager.Server starts before the caches are filled, so that /readyz can name them.
	probes := &crmanager.Server{Name: "health", Server: health.Server, Listener: health.Listener, ShutdownTimeout: &drain}
	for _, part := range append([]crmanager.Runnable{probes}, others...) {
		if err := m.Add(part); err != nil {
			return fmt.Errorf("add health checks and metrics: %w", err)
		}
	}
	return nil
}

// Run runs the manager until ctx ends. An error after that is of a part that was still starting, and no failure, unless
// a part did not stop in time.
func Run(ctx context.Context, m crmanager.Manager) error {
	err := m.Start(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		logr.FromContextOrDiscard(ctx).Info("Stopped while parts were starting", "reason", err.Error())
		return nil
	}
	return fmt.Errorf("run: %w", err)
}
