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

// Metrics has the daemon's metrics.
type Metrics struct {
	// Failures counts Pods that could not be attached.
	Failures *FailureMetrics
	// Links has the metrics of netwatcher.
	Links *LinkMetrics

	requests *prometheus.HistogramVec
	backends *prometheus.HistogramVec
	writes   *prometheus.HistogramVec
	claims   *prometheus.HistogramVec
	probes   *prometheus.HistogramVec
}

// Sources are the parts of the daemon that have values of their own. They are read at each scrape,
// and all are required.
type Sources struct {
	// PublishQueueDepth is how many sandboxes wait to be written to the API server.
	PublishQueueDepth func() int
	// Networks is how many networks of the cluster are valid.
	Networks func() int
	// WarmPoolUsable reports whether the node may hand out addresses of its warm pool.
	WarmPoolUsable func() bool
	// JournalDamaged reports whether records of the journal are corrupt or missing.
	JournalDamaged func() bool
	// Addresses are the statistics of the allocator.
	Addresses func() allocator.Stats
	// AttachedDevices are the PCI addresses of the devices that Pods have.
	AttachedDevices func() []string
	// DroppedPackets are the packets that the packet filter has dropped, by place.
	DroppedPackets func() map[string]uint64
	// DropPlaces are the places of DroppedPackets.
	DropPlaces []string
}

// durationBuckets returns the buckets of all histograms, in seconds. A slave link takes a
// millisecond, and a delegate or an unreachable API server takes seconds.
func durationBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// Register registers all metrics of the daemon. version is a label of patchbay_build_info.
func Register(r prometheus.Registerer, version string, s Sources) *Metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: durationBuckets()}, labels)
	}
	m := &Metrics{
		Failures: registerFailures(r), Links: registerLinks(r, s.AttachedDevices),
		requests: histogram("patchbay_cni_request_duration_seconds",
			"Requests of the CNI plugin, by command and CNI error code (0 is success).", "command", "code"),
		backends: histogram("patchbay_backend_duration_seconds",
			"Attached and detached interfaces, by backend, step (attach, detach) and result (ok, error).", "backend", "step", "result"),
		writes: histogram("patchbay_ipam_commit_duration_seconds",
			"Writes of addresses into a network's status, by result (ok, conflict, gone, error). One write may claim and free many.", "result"),
		claims: histogram("patchbay_claim_commit_duration_seconds",
			"Claims that the warm pool could not serve, by result (ok, exhausted, again, error). again means that a retry may help.", "result"),
		probes: histogram("patchbay_conflict_probe_duration_seconds",
			"Address conflict probes before an interface is attached, by result (free, conflict, error).", "result"),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "patchbay_build_info", Help: "Always 1. The label is the daemon's version.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	r.MustRegister(m.requests, m.backends, m.writes, m.claims, m.probes, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registerSources(r, s)
	return m
}

// registerSources registers the metrics that are read at each scrape.
func registerSources(r prometheus.Registerer, s Sources) {
	registerGauge(r, "patchbay_publish_queue_depth", "Sandboxes whose DanmEps or addresses are not written to the API server yet.",
		func() float64 { return float64(s.PublishQueueDepth()) })
	registerGauge(r, "patchbay_networks", "Valid networks in the cluster.",
		func() float64 { return float64(s.Networks()) })
	registerGauge(r, "patchbay_warm_pool_usable", "1 while the node may hand out addresses of its warm pool: a read found its Node in the last 10 minutes. 0 on a node that is cut off, or whose Node object is gone.",
		func() float64 { return boolValue(s.WarmPoolUsable()) })
	registerGauge(r, "patchbay_journal_damaged", "1 while no Pod can be attached because records of the journal are corrupt or missing.",
		func() float64 { return boolValue(s.JournalDamaged()) })
	registerAddresses(r, s.Addresses)
	registerDroppedPackets(r, s.DroppedPackets, s.DropPlaces)
}

// registerGauge registers a gauge whose value is read at each scrape.
func registerGauge(r prometheus.Registerer, name, help string, value func() float64) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// boolValue returns 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// registerAddresses registers an allocator's statistics.
func registerAddresses(r prometheus.Registerer, stats func() allocator.Stats) {
	registerGauge(r, "patchbay_addresses_warm", "Pre-allocated addresses in this node's warm pool.",
		func() float64 { return float64(stats().Warm) })
	registerGauge(r, "patchbay_addresses_cooldown", "Addresses of this node in cooldown after the end of a Pod.",
		func() float64 { return float64(stats().Cooling) })
	registerGauge(r, "patchbay_addresses_quarantined", "Addresses that this node keeps in quarantine because other machines use them.",
		func() float64 { return float64(stats().Quarantined) })
	registerGauge(r, "patchbay_warm_pool_networks", "Networks of which this node has addresses in the warm pool or in cooldown.",
		func() float64 { return float64(stats().Networks) })
	registerClaimCounter(r, "warm_pool", func() int64 { return stats().FromWarmPool })
	registerClaimCounter(r, "commit", func() int64 { return stats().Committed })
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "patchbay_claims_exhausted_total", Help: "Claims that found no free address.",
	}, func() float64 { return float64(stats().Exhausted) }))
}

// registerClaimCounter registers the counter of the claims from one source.
func registerClaimCounter(r prometheus.Registerer, source string, value func() int64) {
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "patchbay_claims_total",
		Help:        "Successful claims, by source of the address: warm_pool (warm pool) or commit (write to the API server).",
		ConstLabels: prometheus.Labels{"source": source},
	}, func() float64 { return float64(value()) }))
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

// registerDroppedPackets registers the number of packets that the packet filter has dropped, by
// place.
func registerDroppedPackets(r prometheus.Registerer, read func() map[string]uint64, places []string) {
	for _, place := range places {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "patchbay_vxlan_packets_dropped_total",
			Help:        "Dropped VXLAN packets that did not come from the VTEP of another node on its NIC, by place (received, forwarded). The count survives restarts of the daemon.",
			ConstLabels: prometheus.Labels{"where": place},
		}, func() float64 { return float64(read()[place]) }))
	}
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
