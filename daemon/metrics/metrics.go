// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Metrics are the daemon's, in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	backends *prometheus.HistogramVec
	writes   *prometheus.HistogramVec
	claims   *prometheus.HistogramVec
	probes   *prometheus.HistogramVec
}

// seconds are the bounds of all histograms: a slave link takes a millisecond, a
// delegate or a lost API server seconds.
func seconds() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// New registers all metrics; version is a label of patchbay_build_info.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_request_duration_seconds", Buckets: seconds(),
			Help: "Requests of the CNI plugin, by command and CNI error code (0 is success).",
		}, []string{"command", "code"}),
		backends: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_backend_duration_seconds", Buckets: seconds(),
			Help: "Interfaces made and removed, by backend, step (attach, detach) and result (ok, error).",
		}, []string{"backend", "step", "result"}),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_network_write_duration_seconds", Buckets: seconds(),
			Help: "Writes of a network's addresses, by result (ok, conflict, gone, error). One write may claim and release many.",
		}, []string{"result"}),
	}
	m.claims = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "patchbay_claim_seconds", Buckets: seconds(),
		Help: "Claims of addresses that were not kept ready, by result (ok, exhausted, again, error).",
	}, []string{"result"})
	m.probes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "patchbay_conflict_probe_duration_seconds", Buckets: seconds(),
		Help: "Address conflict probes before an interface is made, by result (free, conflict, error).",
	}, []string{"result"})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "patchbay_build_info", Help: "Always 1; the label is the daemon's version.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.backends, m.writes, m.claims, m.probes, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Gatherer collects all metrics for whoever serves them.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Gauge adds a number that is asked for when somebody looks.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Request notes one request; it has the shape of server.Config.Observe.
func (m *Metrics) Request(command string, code uint, took time.Duration) {
	m.requests.WithLabelValues(command, strconv.FormatUint(uint64(code), 10)).Observe(took.Seconds())
}

// Claim notes a claim that cost a write; it has the shape of claims.Config.Observe.
func (m *Metrics) Claim(took time.Duration, err error) {
	result := "ok"
	switch {
	case errors.Is(err, claims.ErrExhausted):
		result = "exhausted"
	case errors.Is(err, claims.ErrTryAgain), errors.Is(err, claims.ErrUnknownState):
		result = "again"
	case err != nil:
		result = "error"
	}
	m.claims.WithLabelValues(result).Observe(took.Seconds())
}

// Addresses adds how an allocator stands, asked for when somebody looks.
func (m *Metrics) Addresses(stats func() claims.Stats) {
	m.Gauge("patchbay_addresses_held", "Addresses that this node keeps ready for Pods to come.",
		func() float64 { return float64(stats().Held) })
	m.Gauge("patchbay_addresses_cooling", "Addresses of this node that rest after a Pod had them.",
		func() float64 { return float64(stats().Cooling) })
	m.Gauge("patchbay_addresses_quarantined", "Addresses that this node keeps from Pods because other machines have them.",
		func() float64 { return float64(stats().Quarantined) })
	m.Gauge("patchbay_addresses_networks", "Networks of which this node has addresses ready or resting.",
		func() float64 { return float64(stats().Networks) })
	const name, help = "patchbay_claims_total", "Claims that succeeded, by where the address came from (hold, commit)."
	m.counter(name, help, "hold", func() int64 { return stats().FromHold })
	m.counter(name, help, "commit", func() int64 { return stats().Committed })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "patchbay_exhausted_total", Help: "Claims that found no free address.",
	}, func() float64 { return float64(stats().Exhausted) }))
}

// counter adds a number that only grows, with a source.
func (m *Metrics) counter(name, help, source string, value func() int64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"source": source},
	}, func() float64 { return float64(value()) }))
}

// Backend measures a backend. It keeps the optional port attach.Preparer.
func (m *Metrics) Backend(name string, b attach.Backend) attach.Backend {
	measured := &backend{Backend: b, name: name, metrics: m}
	if p, ok := b.(attach.Preparer); ok {
		return struct {
			*backend
			attach.Preparer
		}{measured, p}
	}
	return measured
}

// backend is one that is measured.
type backend struct {
	attach.Backend
	name    string
	metrics *Metrics
}

// Attach implements attach.Backend.
func (b *backend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	start := time.Now()
	err := b.Backend.Attach(ctx, rec, ifc)
	b.observe("attach", start, err)
	return err
}

// Detach implements attach.Backend.
func (b *backend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	start := time.Now()
	err := b.Backend.Detach(ctx, rec, ifc)
	b.observe("detach", start, err)
	return err
}

func (b *backend) observe(step string, start time.Time, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	b.metrics.backends.WithLabelValues(b.name, step, result).Observe(time.Since(start).Seconds())
}

// Store measures the writes of a store.
func (m *Metrics) Store(s claims.Store) claims.Store {
	return &store{Store: s, metrics: m}
}

// store is one whose writes are measured.
type store struct {
	claims.Store
	metrics *Metrics
}

// Update implements claims.Store.
func (s *store) Update(ctx context.Context, o *claims.Object) (*claims.Object, error) {
	start := time.Now()
	written, err := s.Store.Update(ctx, o)
	s.metrics.writes.WithLabelValues(result(err)).Observe(time.Since(start).Seconds())
	return written, err
}

// result is one word for how a write ended.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, claims.ErrConflict):
		return "conflict"
	case errors.Is(err, claims.ErrNotFound):
		return "gone"
	}
	return "error"
}

// Prober measures address conflict probes.
func (m *Metrics) Prober(p attach.Prober) attach.Prober { return prober{p, m} }

// prober is one that is measured.
type prober struct {
	prober  attach.Prober
	metrics *Metrics
}

// Probe implements attach.Prober.
func (p prober) Probe(ctx context.Context, parent string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	start, result := time.Now(), "free"
	macs, err := p.prober.Probe(ctx, parent, addrs)
	switch {
	case err != nil:
		result = "error"
	case len(macs) > 0:
		result = "conflict"
	}
	p.metrics.probes.WithLabelValues(result).Observe(time.Since(start).Seconds())
	return macs, err
}
