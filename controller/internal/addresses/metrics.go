// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
)

// metrics are the values of the leader; in another replica the metrics have none.
type metrics struct {
	drift                            *prometheus.CounterVec
	freedAddresses, removedEndpoints prometheus.Counter
	forgedEndpoints, movedEndpoints  prometheus.Counter
	blockingEndpoints                prometheus.Gauge
	allocated, capacity              *prometheus.GaugeVec
	conflicts                        *prometheus.GaugeVec
	recovering                       prometheus.Gauge
	lastSweep                        prometheus.Gauge

	// knownPools are the networks with values. Only the sweeper uses it.
	knownPools map[network.Ref]poolSize
}

// poolSize holds status.allocated and status.capacity of a network.
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
			Help: "Wrong bits of networks' bitmaps that were corrected, by kind: freed bits had no owner, marked bits were clear though the address was in use. Investigate values above zero.",
		}, []string{"kind"}),
		freedAddresses:    counter("patchbay_ipam_gc_freed_addresses_total", "Addresses freed because their Node was deleted."),
		removedEndpoints:  counter("patchbay_ipam_gc_removed_danmeps_total", "DanmEps removed because their Node was deleted."),
		forgedEndpoints:   counter("patchbay_ipam_forged_danmeps_total", "DanmEps removed because their Pod runs on another node than the one that created them. Above zero, check that node for a compromise."),
		movedEndpoints:    counter("patchbay_ipam_moved_danmeps_total", "DanmEps moved out of namespaces in deletion because their Pods were gone and their nodes did not remove them. Above zero, check these nodes."),
		blockingEndpoints: gauge("patchbay_ipam_orphaned_danmeps", "DanmEps without a Pod that block the deletion of their namespace. An Event on each one's Node names it."),
		allocated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_pool_allocated", Help: "Addresses of a network that are in use or held by nodes: status.allocated.",
		}, labels),
		capacity: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_pool_capacity", Help: "Dynamic addresses of a network: status.capacity.",
		}, labels),
		conflicts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_address_conflicts",
			Help: "Addresses of a network with two owners: two Pods, or a Pod and another node. Above zero, see the network's condition AddressConflict for the Pods.",
		}, labels),
		recovering: gauge("patchbay_networks_recovering", "Networks that allocate no address until their nodes have reported the addresses in use."),
		lastSweep:  gauge("patchbay_ipam_gc_last_run_timestamp_seconds", "Unix time of the leader's last sweep of all networks."),
	}
	r.MustRegister(m.drift, m.freedAddresses, m.removedEndpoints, m.forgedEndpoints, m.movedEndpoints, m.blockingEndpoints, m.allocated, m.capacity, m.conflicts, m.recovering, m.lastSweep)
	for _, kind := range []string{"freed", "marked"} {
		m.drift.WithLabelValues(kind)
	}
	return m
}

// addDrift counts the corrections of an audit.
func (m *metrics) addDrift(d gc.Drift) {
	m.drift.WithLabelValues("freed").Add(float64(d.Freed))
	m.drift.WithLabelValues("marked").Add(float64(d.Marked))
}

// setConflicts sets how many addresses of a network have two owners.
func (m *metrics) setConflicts(ref network.Ref, n int) {
	if n == 0 {
		m.conflicts.DeleteLabelValues(ref.Kind, ref.Namespace, ref.Name)
		return
	}
	m.conflicts.WithLabelValues(ref.Kind, ref.Namespace, ref.Name).Set(float64(n))
}

// setPools sets the pools' values, and removes those of networks that do not exist any more.
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
