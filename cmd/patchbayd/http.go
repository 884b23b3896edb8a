// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/patchbay-cni/patchbay/securemetrics"
)

// serveHTTP serves health checks until ctx ends.
func (d *daemon) serveHTTP(ctx context.Context) error {
	l, err := net.Listen("tcp", d.http)
	if err != nil {
		return fmt.Errorf("listen for health checks on %s: %w", d.http, err)
	}
	s := &http.Server{Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}

// serveMetrics serves metrics to clients that may read them, until ctx ends.
func (d *daemon) serveMetrics(ctx context.Context) error {
	s, err := securemetrics.Listen(d.scrapes, d.config, d.metrics.Gatherer(), d.log)
	if err != nil {
		return err
	}
	return s.Start(ctx)
}

// handler answers /healthz (the process works) and /readyz (Pods can be attached).
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !d.ready.Load() {
			http.Error(w, d.unready(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

// unready says why Pods cannot be attached.
func (d *daemon) unready() string {
	if err := d.addresses.Err(); err != nil {
		return err.Error()
	}
	return "the plugin is being put in place"
}
