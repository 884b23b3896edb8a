// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// startHealthServer answers /healthz (the process works) and /readyz (the hub's Works are known)
// until stop is called.
func startHealthServer(ctx context.Context, address string, ready func() bool) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("flag --http-address: listen for health checks: %w", err)
	}
	s := &http.Server{Handler: healthHandler(ready), ReadHeaderTimeout: headerTimeout}
	go func() { _ = s.Serve(l) }() // it ends with Shutdown
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverShutdownTimeout)
		defer cancel()
		_ = s.Shutdown(ctx) // the process ends
	}, nil
}

// Times of the server for health checks.
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
			http.Error(w, "the hub has not been reached since the start; what is here is upheld all the same", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}
