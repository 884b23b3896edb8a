// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Times of a HealthServer.
const (
	// readyTimeout bounds a readiness check.
	readyTimeout = 100 * time.Millisecond
	// headerTimeout bounds how long a client may take to send its request.
	headerTimeout = 5 * time.Second
	// HealthShutdownTimeout bounds how long requests in progress may take when the server stops.
	HealthShutdownTimeout = 2 * time.Second
)

// HealthServer answers GET /healthz with 200 while the process runs, and GET /readyz with 200
// when the program is ready, else with 503 and the reason. It answers no other path.
//
// It is a runnable that needs no leader. A controller-runtime manager starts it after the caches
// are synced, as it starts every runnable. Where /readyz must answer before, add a manager.Server
// with the Server and Listener of this one.
type HealthServer struct {
	Server   *http.Server
	Listener net.Listener
}

// ListenHealth opens the address of flag --health-address. The server calls ready for each request
// of /readyz, with a context that ends after 100 ms; its error is the reason in the answer.
func ListenHealth(address string, ready func(context.Context) error) (*HealthServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("flag --health-address: listen for health checks: %w", err)
	}
	return &HealthServer{Listener: l, Server: &http.Server{Handler: HealthHandler(ready), ReadHeaderTimeout: headerTimeout}}, nil
}

// HealthHandler is the handler of a HealthServer.
func HealthHandler(ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

// errNotSynced is the reason of a program whose caches are not synced.
var errNotSynced = errors.New("the caches are not synced yet: check that the API server is reachable, and that RBAC is installed")

// CheckSynced returns an error until synced, a cache's WaitForCacheSync, returns true.
func CheckSynced(ctx context.Context, synced func(context.Context) bool) error {
	if !synced(ctx) {
		return errNotSynced
	}
	return nil
}

// AllReady returns a check that returns the first error of the checks.
func AllReady(checks ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, check := range checks {
			if err := check(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Start serves until ctx ends, and then waits for requests in progress.
func (s *HealthServer) Start(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), HealthShutdownTimeout)
		defer cancel()
		_ = s.Server.Shutdown(ctx)
	})
	err := s.Server.Serve(s.Listener)
	if !stop() {
		<-stopped
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: kubelet probes every replica.
func (*HealthServer) NeedLeaderElection() bool { return false }
