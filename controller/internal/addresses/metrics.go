// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// metrics are those of the leader; another replica has the names without values.
type metrics struct {
	drift                            *prometheus.CounterVec
	freedAddresses, removedEndpoints prometheus.Counter
	forgedEndpoints, movedEndpoints  prometheus.Counter
	blockingEndpoints                prometheus.Gauge
	allocated, capacity              *prometheus.GaugeVec
	conflicts                        *prometheus.GaugeVec
	recovering                       prometheus.Gauge
	lastSweep                        prometheus.Gauge

	// knownPools are the networks with values; only the sweep touches it.
	knownPools map[network.Ref]poolSize
}

// poolSize is status.allocated and status.capacity.
type poolSize struct{ allocated, capacity int64 }

// newMetrics registers all metrics.
func newMetrics(r prometheus.Registerer) *metrics {
	labels := []string{"kind", "namespace", "name"}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_ipam_drift_total",
			Help: "Bits of networks' bitmaps that were wrong, by kind: freed had nobody who covers them, marked were clear and in use. Above zero is worth a look.",
		}, []string{"kind"}),
		freedAddresses:    counter("patchbay_ipam_gc_freed_addresses_total", "Addresses freed because their Node was deleted."),
		removedEndpoints:  counter("patchbay_ipam_gc_removed_danmeps_total", "DanmEps removed because their Node was deleted."),
		forgedEndpoints:   counter("patchbay_ipam_forged_danmeps_total", "DanmEps removed because their Pod runs on another node than the one that made them. Above zero, look whether that node is compromised."),
		movedEndpoints:    counter("patchbay_ipam_moved_danmeps_total", "DanmEps moved out of namespaces in deletion because their Pods are gone and their nodes did not end them. Above zero, look whether these nodes are well."),
		blockingEndpoints: gauge("patchbay_ipam_orphaned_danmeps", "DanmEps without a Pod that keep a namespace from being deleted. An Event on each one's Node names it."),
		allocated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_pool_allocated", Help: "Addresses of a network that are in use or held by nodes: status.allocated.",
		}, labels),
		capacity: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_pool_capacity", Help: "Dynamic addresses of a network: status.capacity.",
		}, labels),
		conflicts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_address_conflicts",
			Help: "Addresses of a network that two Pods have, or a Pod and another node. Above zero needs attention: the network's condition AddressConflict names the Pods.",
		}, labels),
		recovering: gauge("patchbay_networks_recovering", "Networks that give out no address until their nodes have said what they use."),
		lastSweep:  gauge("patchbay_ipam_gc_last_run_timestamp_seconds", "When the leader last looked at all networks, in Unix time."),
	}
	r.MustRegister(m.drift, m.freedAddresses, m.removedEndpoints, m.forgedEndpoints, m.movedEndpoints, m.blockingEndpoints, m.allocated, m.capacity, m.conflicts, m.recovering, m.lastSweep)
	for _, kind := range []string{"freed", "marked"} {
		m.drift.WithLabelValues(kind)
	}
	return m
}

// addDrift counts what an audit corrected.
func (m *metrics) addDrift(d claims.Drift) {
	m.drift.WithLabelValues("freed").Add(float64(d.Freed))
	m.drift.WithLabelValues("marked").Add(float64(d.Marked))
}

// setConflicts notes how many addresses of a network have two owners.
func (m *metrics) setConflicts(ref network.Ref, n int) {
	if n == 0 {
		m.conflicts.DeleteLabelValues(ref.Kind, ref.Namespace, ref.Name)
		return
	}
	m.conflicts.WithLabelValues(ref.Kind, ref.Namespace, ref.Name).Set(float64(n))
}

// setPools notes how full the networks are, and forgets those that are gone.
func (m *metrics) setPools(all map[network.Ref]poolSize) {
	for ref := range m.knownPools {
		if _, ok := all[ref]; !ok {
			m.allocated.DeleteLabelValues(ref.Kind, ref.Namespace, ref.Name)
			m.capacity.DeleteLabelValues(ref.Kind, ref.Namespace, ref.Name)
			m.setConflicts(ref, 0)
		}
	}
	for ref, p := range all {
		m.allocated.WithLabelValues(ref.Kind, ref.Namespace, ref.Name).Set(float64(p.allocated))
		m.capacity.WithLabelValues(ref.Kind, ref.Namespace, ref.Name).Set(float64(p.capacity))
	}
	m.knownPools = all
}
