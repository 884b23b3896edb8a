// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// broken is a backend and a store that always fail.
type broken struct {
	claims.Store
	err error
}

func (b broken) Attach(context.Context, *attach.Record, *attach.Interface) error { return b.err }
func (b broken) Detach(context.Context, *attach.Record, *attach.Interface) error { return nil }
func (b broken) Update(context.Context, *claims.Object) (*claims.Object, error)  { return nil, b.err }

// preparer is a backend that prepares.
type preparer struct{ broken }

func (preparer) Prepare(context.Context, *attach.Request, *attach.Interface) error {
	return errors.New("prepared")
}

// addresses is an allocator at work.
func addresses(_ context.Context, m *metrics.Metrics) {
	m.RegisterAddresses(func() claims.Stats {
		return claims.Stats{Held: 5, Cooling: 2, Networks: 3, FromHold: 7, Committed: 11, Exhausted: 13}
	})
}

// scrape returns what Prometheus would read.
func scrape(m *metrics.Metrics) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m.Gatherer(), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		do     func(context.Context, *metrics.Metrics)
		want   string
	}{
		"Request": {
			reason: "requests are told apart by command and CNI code",
			do:     func(_ context.Context, m *metrics.Metrics) { m.ObserveRequest("ADD", 11, time.Second) },
			want:   `patchbay_request_duration_seconds_count{code="11",command="ADD"} 1`,
		},
		"AttachFailed": {
			reason: "an error of a backend is counted as one",
			do: func(ctx context.Context, m *metrics.Metrics) {
				_ = m.InstrumentBackend("ipvlan", broken{err: errors.New("no")}).Attach(ctx, nil, nil)
			},
			want: `patchbay_backend_duration_seconds_count{backend="ipvlan",result="error",step="attach"} 1`,
		},
		"Detached": {
			reason: "success is counted as such",
			do: func(ctx context.Context, m *metrics.Metrics) {
				_ = m.InstrumentBackend("ipvlan", broken{}).Detach(ctx, nil, nil)
			},
			want: `patchbay_backend_duration_seconds_count{backend="ipvlan",result="ok",step="detach"} 1`,
		},
		"Conflict": {
			reason: "conflicts tell how hard nodes compete for a network",
			do: func(ctx context.Context, m *metrics.Metrics) {
				_, _ = m.InstrumentStore(broken{err: fmt.Errorf("x: %w", claims.ErrConflict)}).Update(ctx, nil)
			},
			want: `patchbay_network_write_duration_seconds_count{result="conflict"} 1`,
		},
		"ClaimWritten": {
			reason: "a claim that cost a write is timed",
			do:     func(_ context.Context, m *metrics.Metrics) { m.ObserveClaim(time.Second, nil) },
			want:   `patchbay_claim_seconds_count{result="ok"} 1`,
		},
		"ClaimExhausted": {
			reason: "a pool that is used up is told from a server that is away",
			do: func(_ context.Context, m *metrics.Metrics) {
				m.ObserveClaim(time.Second, fmt.Errorf("x: %w", claims.ErrExhausted))
			},
			want: `patchbay_claim_seconds_count{result="exhausted"} 1`,
		},
		"ClaimAgain": {
			reason: "waiting helps",
			do: func(_ context.Context, m *metrics.Metrics) {
				m.ObserveClaim(time.Second, fmt.Errorf("x: %w", claims.ErrTryAgain))
			},
			want: `patchbay_claim_seconds_count{result="again"} 1`,
		},
		"ClaimFailed": {
			reason: "waiting does not help",
			do:     func(_ context.Context, m *metrics.Metrics) { m.ObserveClaim(time.Second, claims.ErrOutside) },
			want:   `patchbay_claim_seconds_count{result="error"} 1`,
		},
		"Held":      {reason: "how many Pods need no write", do: addresses, want: "patchbay_addresses_warm 5"},
		"Cooling":   {reason: "and who will soon", do: addresses, want: "patchbay_addresses_cooldown 2"},
		"Networks":  {reason: "in how many networks", do: addresses, want: "patchbay_warm_pool_networks 3"},
		"FromHold":  {reason: "claims without a write", do: addresses, want: `patchbay_claims_total{source="warm_pool"} 7`},
		"Committed": {reason: "claims with one", do: addresses, want: `patchbay_claims_total{source="commit"} 11`},
		"Exhausted": {reason: "claims in vain", do: addresses, want: "patchbay_claims_exhausted_total 13"},
		"Gauge": {
			reason: "a gauge is asked when somebody looks",
			do: func(_ context.Context, m *metrics.Metrics) {
				m.RegisterGauge("patchbay_test", "help", func() float64 { return 7 })
			},
			want: "patchbay_test 7",
		},
		"Build": {
			reason: "the version can be seen",
			do:     func(context.Context, *metrics.Metrics) {},
			want:   `patchbay_build_info{version="v1"} 1`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := metrics.New("v1")
			tc.do(t.Context(), m)
			if got := scrape(m); !strings.Contains(got, tc.want+"\n") {
				t.Errorf("%s: %q is not in\n%s", tc.reason, tc.want, got)
			}
		})
	}
}

func TestMeasuredBackendStillPrepares(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1")
	p, ok := m.InstrumentBackend("delegate", preparer{}).(attach.Preparer)
	if !ok || p.Prepare(t.Context(), nil, nil) == nil {
		t.Error("a measured delegate lost its Prepare: its configuration would not be journalled")
	}
	if _, ok := m.InstrumentBackend("ipvlan", broken{}).(attach.Preparer); ok {
		t.Error("a measured backend prepares although it does not")
	}
}
