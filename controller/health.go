// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Times of the server for health checks.
const (
	// syncTimeout is how long /readyz waits for caches that are about to be there.
	syncTimeout = 100 * time.Millisecond
	// headerTimeout bounds how long a client may take to ask.
	headerTimeout = 5 * time.Second
	// serverShutdownTimeout bounds how long answers under way may take at the end.
	serverShutdownTimeout = 2 * time.Second
)

// newHealthServer listens on address for health checks, whether this replica
// leads or not, and before its caches are filled. Synced waits for those; admission
// says why it does not answer yet.
func newHealthServer(
	address string, synced func(context.Context) bool, admission func() error,
) (*manager.Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("flag --http-address: listen for health checks: %w", err)
	}
	drain := serverShutdownTimeout
	return &manager.Server{
		Name: "health", Listener: l, ShutdownTimeout: &drain,
		Server: &http.Server{Handler: healthHandler(synced, admission), ReadHeaderTimeout: headerTimeout},
	}, nil
}

// healthHandler answers /healthz (the process works) and /readyz (it could lead at once: its
// caches are filled, and admission answers the API server).
func healthHandler(synced func(context.Context) bool, admission func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), syncTimeout)
		defer cancel()
		if !synced(ctx) {
			http.Error(w, "the caches are being filled: is the API server there, and RBAC in place?", http.StatusServiceUnavailable)
			return
		}
		if err := admission(); err != nil {
			http.Error(w, "admission does not answer yet: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}
