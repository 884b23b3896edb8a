// SPDX-License-Identifier: Apache-2.0

package main

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
	// syncPatience is how long /readyz waits for caches that are about to be there.
	syncPatience = 100 * time.Millisecond
	// headerTimeout bounds how long a client may take to ask.
	headerTimeout = 5 * time.Second
)

// newServer listens on address for health checks, whether this replica
// leads or not, and before its caches are filled. Synced waits for those.
func newServer(address string, synced func(context.Context) bool) (*manager.Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("flag --http-address: listen for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), syncPatience)
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
