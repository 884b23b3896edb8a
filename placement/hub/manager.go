// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/patchbay-cni/patchbay/internal/relist"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/controllers"
)

// newManager makes the manager with the hub's controllers and servers.
func newManager(ctx context.Context, cfg *rest.Config, o *options) (manager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	// The number of workers bounds the requests, and the API server has priority and fairness: a client-side
	// rate limit would only add latency.
	cfg.QPS = -1
	relist.WrapConfig(cfg)
	opts, err := controllers.Options(ctx)
	if err != nil {
		return nil, err
	}
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
	if err := controllers.Add(ctx, m, controllers.Config{Workers: o.workers}); err != nil {
		return nil, fmt.Errorf("set up the hub: %w", err)
	}
	s, err := newHealthServer(o.healthAddress, m.GetCache().WaitForCacheSync)
	if err != nil {
		return nil, err
	}
	scrapes, err := securemetrics.Listen(o.secureMetrics, m.GetConfig(), metrics.Registry, m.GetLogger())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.Add(s), m.Add(scrapes)); err != nil {
		return nil, fmt.Errorf("add health checks and metrics: %w", err)
	}
	return m, nil
}

// leaseName is the name of the Lease for leader election.
const leaseName = "patchbay-hub"

// gracefulShutdownTimeout is how long reconciliations may run after ctx has ended.
const gracefulShutdownTimeout = 15 * time.Second

// newHealthServer makes a server for health checks, which also runs on replicas that do not lead, and before
// the caches are synced. synced waits for the caches.
func newHealthServer(address string, synced func(context.Context) bool) (*manager.Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("flag --http-address: listen for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), syncTimeout)
		defer cancel()
		if !synced(ctx) {
			http.Error(w, "the caches are not synced: check that the API server is reachable and RBAC is applied", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return &manager.Server{
		Name: "health", Listener: l,
		Server: &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout},
	}, nil
}

// Timeouts of the server for health checks.
const (
	// syncTimeout is how long /readyz waits for the caches.
	syncTimeout = 100 * time.Millisecond
	// headerTimeout is how long a client may take to send the headers.
	headerTimeout = 5 * time.Second
)
