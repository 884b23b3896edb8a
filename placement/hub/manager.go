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

// newManager wires the hub's parts; nothing runs yet.
func newManager(ctx context.Context, cfg *rest.Config, o *options) (manager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	// Requests are bounded by workers, and the API server shares itself out with
	// priority and fairness: waiting here besides would only add latency.
	cfg.QPS = -1
	relist.WrapConfig(cfg)
	opts, err := controllers.Options(ctx)
	if err != nil {
		return nil, err
	}
	drain := gracefulShutdownTimeout
	opts.Logger = logr.FromContextOrDiscard(ctx)
	opts.LeaderElection = o.leaderElect
	opts.LeaderElectionID = leaseName
	opts.LeaderElectionNamespace = o.namespace
	opts.LeaderElectionReleaseOnCancel = true // main ends when the manager has
	opts.GracefulShutdownTimeout = &drain
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

// leaseName is the Lease that the replicas compete for.
const leaseName = "patchbay-hub"

// gracefulShutdownTimeout bounds what is under way when the hub is asked to end.
const gracefulShutdownTimeout = 15 * time.Second

// newHealthServer listens on address for health checks, whether this replica
// leads or not, and before its caches are filled. Synced waits for those.
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
			http.Error(w, "the caches are being filled: is the API server there, and RBAC in place?", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return &manager.Server{
		Name: "health", Listener: l,
		Server: &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout},
	}, nil
}

// Times of the server for health checks.
const (
	// syncTimeout is how long /readyz waits for caches that are about to be there.
	syncTimeout = 100 * time.Millisecond
	// headerTimeout bounds how long a client may take to ask.
	headerTimeout = 5 * time.Second
)
