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

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Metrics has the daemon's metrics, in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	backends *prometheus.HistogramVec
	writes   *prometheus.HistogramVec
	claims   *prometheus.HistogramVec
	probes   *prometheus.HistogramVec
}

// durationBuckets returns the buckets of all histograms, in seconds. A slave link takes a
// millisecond, and a delegate or an unreachable API server takes seconds.
func durationBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// New registers the metrics that the daemon observes. version is a label of patchbay_build_info.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_cni_request_duration_seconds", Buckets: durationBuckets(),
			Help: "Requests of the CNI plugin, by command and CNI error code (0 is success).",
		}, []string{"command", "code"}),
		backends: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_backend_duration_seconds", Buckets: durationBuckets(),
			Help: "Attached and detached interfaces, by backend, step (attach, detach) and result (ok, error).",
		}, []string{"backend", "step", "result"}),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_ipam_commit_duration_seconds", Buckets: durationBuckets(),
			Help: "Writes of addresses into a network's status, by result (ok, conflict, gone, error). One write may claim and free many.",
		}, []string{"result"}),
	}
	m.claims = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "patchbay_claim_commit_duration_seconds", Buckets: durationBuckets(),
		Help: "Claims that the warm pool could not serve, by result (ok, exhausted, again, error).",
	}, []string{"result"})
	m.probes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "patchbay_conflict_probe_duration_seconds", Buckets: durationBuckets(),
		Help: "Address conflict probes before an interface is attached, by result (free, conflict, error).",
	}, []string{"result"})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "patchbay_build_info", Help: "Always 1. The label is the daemon's version.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.backends, m.writes, m.claims, m.probes, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Gatherer returns all metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// RegisterGauge registers a gauge whose value is read at each scrape.
func (m *Metrics) RegisterGauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// ObserveRequest observes one request of the plugin. It has the signature of server.Config.Observe.
func (m *Metrics) ObserveRequest(command string, code uint, took time.Duration) {
	m.requests.WithLabelValues(command, strconv.FormatUint(uint64(code), 10)).Observe(took.Seconds())
}

// ObserveClaim observes a claim that the warm pool could not serve. It has the signature of
// allocator.Config.Observe.
func (m *Metrics) ObserveClaim(took time.Duration, err error) {
	result := "ok"
	switch {
	case errors.Is(err, allocator.ErrExhausted):
		result = "exhausted"
	case errors.Is(err, status.ErrTryAgain), errors.Is(err, status.ErrUnknownState):
		result = "again"
	case err != nil:
		result = "error"
	}
	m.claims.WithLabelValues(result).Observe(took.Seconds())
}

// RegisterAddresses registers an allocator's statistics, which are read at each scrape.
func (m *Metrics) RegisterAddresses(stats func() allocator.Stats) {
	m.RegisterGauge("patchbay_addresses_warm", "Pre-allocated addresses in this node's warm pool.",
		func() float64 { return float64(stats().Warm) })
	m.RegisterGauge("patchbay_addresses_cooldown", "Addresses of this node in cooldown after the end of a Pod.",
		func() float64 { return float64(stats().Cooling) })
	m.RegisterGauge("patchbay_addresses_quarantined", "Addresses that this node keeps in quarantine because other machines use them.",
		func() float64 { return float64(stats().Quarantined) })
	m.RegisterGauge("patchbay_warm_pool_networks", "Networks of which this node has addresses in the warm pool or in cooldown.",
		func() float64 { return float64(stats().Networks) })
	const name, help = "patchbay_claims_total", "Successful claims, by source of the address: warm_pool (warm pool) or commit (write to the API server)."
	m.registerClaimCounter(name, help, "warm_pool", func() int64 { return stats().FromWarmPool })
	m.registerClaimCounter(name, help, "commit", func() int64 { return stats().Committed })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "patchbay_claims_exhausted_total", Help: "Claims that found no free address.",
	}, func() float64 { return float64(stats().Exhausted) }))
}

// registerClaimCounter registers a counter with a source.
func (m *Metrics) registerClaimCounter(name, help, source string, value func() int64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"source": source},
	}, func() float64 { return float64(value()) }))
}

// InstrumentBackend measures a backend. The result implements attach.Preparer if the backend does.
func (m *Metrics) InstrumentBackend(name string, b attach.Backend) attach.Backend {
	measured := &instrumentedBackend{Backend: b, name: name, metrics: m}
	if p, ok := b.(attach.Preparer); ok {
		return struct {
			*instrumentedBackend
			attach.Preparer
		}{measured, p}
	}
	return measured
}

// instrumentedBackend is a measured backend.
type instrumentedBackend struct {
	attach.Backend
	name    string
	metrics *Metrics
}

// Attach implements attach.Backend.
func (b *instrumentedBackend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	start := time.Now()
	err := b.Backend.Attach(ctx, rec, ifc)
	b.observe("attach", start, err)
	return err
}

// Detach implements attach.Backend.
func (b *instrumentedBackend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	start := time.Now()
	err := b.Backend.Detach(ctx, rec, ifc)
	b.observe("detach", start, err)
	return err
}

// observe observes one step.
func (b *instrumentedBackend) observe(step string, start time.Time, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	b.metrics.backends.WithLabelValues(b.name, step, result).Observe(time.Since(start).Seconds())
}

// InstrumentStore measures the writes of a store.
func (m *Metrics) InstrumentStore(s allocator.Store) allocator.Store {
	return &instrumentedStore{Store: s, metrics: m}
}

// instrumentedStore is a store with measured writes.
type instrumentedStore struct {
	allocator.Store
	metrics *Metrics
}

// Update implements allocator.Store.
func (s *instrumentedStore) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	start := time.Now()
	written, err := s.Store.Update(ctx, o)
	s.metrics.writes.WithLabelValues(writeResult(err)).Observe(time.Since(start).Seconds())
	return written, err
}

// writeResult returns the label of a write's result.
func writeResult(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, status.ErrConflict):
		return "conflict"
	case errors.Is(err, status.ErrNotFound):
		return "gone"
	}
	return "error"
}

// InstrumentProber measures address conflict probes.
func (m *Metrics) InstrumentProber(p attach.Prober) attach.Prober { return instrumentedProber{p, m} }

// instrumentedProber is a measured prober.
type instrumentedProber struct {
	prober  attach.Prober
	metrics *Metrics
}

// Probe implements attach.Prober.
func (p instrumentedProber) Probe(ctx context.Context, parent string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
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
