// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// startHealthServer serves /healthz (the process runs) and /readyz (the agent has read the hub's Works) until
// stop is called.
func startHealthServer(ctx context.Context, address string, ready func() bool) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("flag --http-address: listen for health checks: %w", err)
	}
	s := &http.Server{Handler: healthHandler(ready), ReadHeaderTimeout: headerTimeout}
	go func() { _ = s.Serve(l) }() // it returns after Shutdown
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverShutdownTimeout)
		defer cancel()
		_ = s.Shutdown(ctx) // the process ends anyway
	}, nil
}

// Timeouts of the server for health checks.
const (
	headerTimeout         = 5 * time.Second
	serverShutdownTimeout = 2 * time.Second
)

func healthHandler(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the agent has not reached the hub since its start; it still repairs the objects of this cluster", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}
