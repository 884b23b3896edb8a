// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
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

// Gauge adds a number that is asked for when somebody looks.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Request notes one request; it has the shape of server.Config.Observe.
func (m *Metrics) Request(command string, code uint, took time.Duration) {
	m.requests.WithLabelValues(command, strconv.FormatUint(uint64(code), 10)).Observe(took.Seconds())
}

// Gatherer collects all metrics for whoever serves them.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
