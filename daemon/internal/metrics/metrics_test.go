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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// fakeBackend is a backend and a store that return err.
type fakeBackend struct {
	allocator.Store
	err error
}

// Attach implements attach.Backend.
func (b fakeBackend) Attach(context.Context, *attach.Record, *attach.Interface) error { return b.err }

// Detach implements attach.Backend.
func (b fakeBackend) Detach(context.Context, *attach.Record, *attach.Interface) error { return nil }

// Update implements allocator.Store.
func (b fakeBackend) Update(context.Context, *status.Object) (*status.Object, error) {
	return nil, b.err
}

// fakePreparer is a backend that implements attach.Preparer.
type fakePreparer struct{ fakeBackend }

// Prepare implements attach.Preparer.
func (fakePreparer) Prepare(context.Context, *attach.Request, *attach.Interface) error {
	return errors.New("prepared")
}

// testMetrics are the metrics of a daemon whose parts have sample values.
type testMetrics struct {
	*metrics.Metrics
	registry *prometheus.Registry
}

func newTestMetrics() testMetrics {
	r := prometheus.NewRegistry()
	return testMetrics{registry: r, Metrics: metrics.Register(r, "v1", metrics.Sources{
		PublishQueueDepth: func() int { return 17 },
		Networks:          func() int { return 19 },
		WarmPoolUsable:    func() bool { return true },
		JournalDamaged:    func() bool { return false },
		Addresses: func() allocator.Stats {
			return allocator.Stats{Warm: 5, Cooling: 2, Quarantined: 4, Networks: 3, FromWarmPool: 7, Committed: 11, Exhausted: 13}
		},
		AttachedDevices: func() []string { return []string{"0000:03:10.0", "0000:03:10.4", "x"} },
		DroppedPackets:  func() map[string]uint64 { return map[string]uint64{"received": 7} },
		DropPlaces:      []string{"received", "forwarded"},
	})}
}

// scrape returns the metrics in the format of a scrape.
func (m testMetrics) scrape() string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// nothing observes nothing.
func nothing(context.Context, testMetrics) {}

// Each observation, and each value of another part, appears in a scrape.
func TestMetrics(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		do     func(context.Context, testMetrics)
		want   string
	}{
		"Request": {
			reason: "Requests have their command and CNI code as labels.",
			do:     func(_ context.Context, m testMetrics) { m.ObserveRequest("ADD", 11, time.Second) },
			want:   `patchbay_cni_request_duration_seconds_count{code="11",command="ADD"} 1`,
		},
		"AttachFailed": {
			reason: "A failed attachment is counted as an error.",
			do: func(ctx context.Context, m testMetrics) {
				_ = m.InstrumentBackend("ipvlan", fakeBackend{err: errors.New("no")}).Attach(ctx, nil, nil)
			},
			want: `patchbay_backend_duration_seconds_count{backend="ipvlan",result="error",step="attach"} 1`,
		},
		"Detached": {
			reason: "A successful detachment is counted as ok.",
			do: func(ctx context.Context, m testMetrics) {
				_ = m.InstrumentBackend("ipvlan", fakeBackend{}).Detach(ctx, nil, nil)
			},
			want: `patchbay_backend_duration_seconds_count{backend="ipvlan",result="ok",step="detach"} 1`,
		},
		"Conflict": {
			reason: "Conflicts show how many nodes compete for a network.",
			do: func(ctx context.Context, m testMetrics) {
				_, _ = m.InstrumentStore(fakeBackend{err: fmt.Errorf("x: %w", status.ErrConflict)}).Update(ctx, nil)
			},
			want: `patchbay_ipam_commit_duration_seconds_count{result="conflict"} 1`,
		},
		"ClaimWritten": {
			reason: "A claim that needs a write is timed.",
			do:     func(_ context.Context, m testMetrics) { m.ObserveClaim(time.Second, nil) },
			want:   `patchbay_claim_commit_duration_seconds_count{result="ok"} 1`,
		},
		"ClaimExhausted": {
			reason: "An exhausted pool is distinguished from an unreachable API server.",
			do: func(_ context.Context, m testMetrics) {
				m.ObserveClaim(time.Second, fmt.Errorf("x: %w", allocator.ErrExhausted))
			},
			want: `patchbay_claim_commit_duration_seconds_count{result="exhausted"} 1`,
		},
		"ClaimAgain": {
			reason: "A retry may help.",
			do: func(_ context.Context, m testMetrics) {
				m.ObserveClaim(time.Second, fmt.Errorf("x: %w", status.ErrTryAgain))
			},
			want: `patchbay_claim_commit_duration_seconds_count{result="again"} 1`,
		},
		"ClaimFailed": {
			reason: "A retry does not help.",
			do:     func(_ context.Context, m testMetrics) { m.ObserveClaim(time.Second, allocator.ErrOutside) },
			want:   `patchbay_claim_commit_duration_seconds_count{result="error"} 1`,
		},
		"Warm":            {reason: "The number of Pods that need no write.", do: nothing, want: "patchbay_addresses_warm 5"},
		"Cooldown":        {reason: "The number of addresses that enter the warm pool next.", do: nothing, want: "patchbay_addresses_cooldown 2"},
		"Quarantined":     {reason: "The number of addresses that other machines have.", do: nothing, want: "patchbay_addresses_quarantined 4"},
		"Networks":        {reason: "The number of networks with such addresses.", do: nothing, want: "patchbay_warm_pool_networks 3"},
		"FromWarmPool":    {reason: "Claims without a write.", do: nothing, want: `patchbay_claims_total{source="warm_pool"} 7`},
		"Committed":       {reason: "Claims with a write.", do: nothing, want: `patchbay_claims_total{source="commit"} 11`},
		"Exhausted":       {reason: "Claims that found no address.", do: nothing, want: "patchbay_claims_exhausted_total 13"},
		"PublishQueue":    {reason: "It grows while the API server accepts no write.", do: nothing, want: "patchbay_publish_queue_depth 17"},
		"ClusterNetworks": {reason: "A daemon that reads no networks shows 0.", do: nothing, want: "patchbay_networks 19"},
		"Usable":          {reason: "1 is a usable warm pool.", do: nothing, want: "patchbay_warm_pool_usable 1"},
		"Journal":         {reason: "0 is a good journal.", do: nothing, want: "patchbay_journal_damaged 0"},
		"Build": {
			reason: "The version is visible.",
			do:     nothing,
			want:   `patchbay_build_info{version="v1"} 1`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newTestMetrics()
			tc.do(t.Context(), m)
			if got := m.scrape(); !strings.Contains(got, tc.want+"\n") {
				t.Errorf("%s: %q is not in\n%s", tc.reason, tc.want, got)
			}
		})
	}
}

// A measured backend implements attach.Preparer exactly if the backend does.
func TestInstrumentedBackendPrepares(t *testing.T) {
	t.Parallel()
	m := newTestMetrics()
	p, ok := m.InstrumentBackend("delegate", fakePreparer{}).(attach.Preparer)
	if !ok || p.Prepare(t.Context(), nil, nil) == nil {
		t.Error("an instrumented delegate must implement attach.Preparer, because the journal needs its configuration")
	}
	if _, ok := m.InstrumentBackend("ipvlan", fakeBackend{}).(attach.Preparer); ok {
		t.Error("an instrumented backend without Prepare must not implement attach.Preparer")
	}
}
