// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
)

// Metrics are the values of the leader; in another replica the metrics have none.
type Metrics struct {
	drift                            *prometheus.CounterVec
	freedAddresses, removedEndpoints prometheus.Counter
	forgedEndpoints, movedEndpoints  prometheus.Counter
	blockingEndpoints                prometheus.Gauge
	poolAddresses                    *prometheus.GaugeVec
	conflicts                        *prometheus.GaugeVec
	recovering                       prometheus.Gauge
	lastSweep                        prometheus.Gauge

	// knownPools are the networks with values. Only the sweeper uses it.
	knownPools map[network.Ref][]v1.PoolStatus
}

// RegisterMetrics registers all metrics of the package.
func RegisterMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"kind", "namespace", "name"}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_ipam_drift_total",
			Help: "Wrong bits of networks' bitmaps that were corrected, by kind: freed bits had no owner, marked bits were clear though the address was in use. Investigate values above zero.",
		}, []string{"kind"}),
		freedAddresses:    counter("patchbay_ipam_gc_freed_addresses_total", "Addresses freed because their Node was deleted."),
		removedEndpoints:  counter("patchbay_ipam_gc_removed_danmeps_total", "DanmEps removed because their Node was deleted."),
		forgedEndpoints:   counter("patchbay_ipam_forged_danmeps_total", "DanmEps removed because their Pod runs on another node than the one that created them (Event ForgedDanmEp on the Pod). Above zero, check that node for a compromise."),
		movedEndpoints:    counter("patchbay_ipam_moved_danmeps_total", "DanmEps moved out of namespaces in deletion because their Pods were gone and their nodes did not remove them (Event DanmEpMoved on the Node). Above zero, check these nodes."),
		blockingEndpoints: gauge("patchbay_ipam_orphaned_danmeps", "DanmEps without a Pod that block the deletion of their namespace. An Event DanmEpOrphaned on each one's Node names it."),
		poolAddresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_pool_addresses",
			Help: "Dynamic addresses of a network by family and state: in_use by Pods, warm on nodes, in cooldown, or free. Their sum is the pool's capacity. State reserved: addresses of the pool that are not dynamic.",
		}, append(labels, "family", "state")),
		conflicts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_address_conflicts",
			Help: "Addresses of a network with two owners: two Pods, or a Pod and another node. Above zero, see the network's condition AddressConflict for the Pods.",
		}, labels),
		recovering: gauge("patchbay_networks_recovering", "Networks that allocate no address until their nodes have reported the addresses in use."),
		lastSweep:  gauge("patchbay_ipam_gc_last_run_timestamp_seconds", "Unix time of the leader's last sweep of all networks."),
	}
	r.MustRegister(m.drift, m.freedAddresses, m.removedEndpoints, m.forgedEndpoints, m.movedEndpoints, m.blockingEndpoints, m.poolAddresses, m.conflicts, m.recovering, m.lastSweep)
	for _, kind := range []string{"freed", "marked"} {
		m.drift.WithLabelValues(kind)
	}
	return m
}

// addDrift counts the corrections of an audit.
func (m *Metrics) addDrift(d gc.Drift) {
	m.drift.WithLabelValues("freed").Add(float64(d.Freed))
	m.drift.WithLabelValues("marked").Add(float64(d.Marked))
}

// setConflicts sets how many addresses of a network have two owners.
func (m *Metrics) setConflicts(ref network.Ref, n int) {
	if n == 0 {
		m.conflicts.DeleteLabelValues(ref.Kind, ref.Namespace, ref.Name)
		return
	}
	m.conflicts.WithLabelValues(ref.Kind, ref.Namespace, ref.Name).Set(float64(n))
}

// setPools sets the pools' values, and removes those of networks and families that do not exist any
// more.
func (m *Metrics) setPools(all map[network.Ref][]v1.PoolStatus) {
	for ref, pools := range m.knownPools {
		if _, ok := all[ref]; !ok {
			m.setConflicts(ref, 0)
		}
		if !slices.EqualFunc(all[ref], pools, func(a, b v1.PoolStatus) bool { return a.Family == b.Family }) {
			m.poolAddresses.DeletePartialMatch(prometheus.Labels{"kind": ref.Kind, "namespace": ref.Namespace, "name": ref.Name})
		}
	}
	for ref, pools := range all {
		for _, p := range pools {
			for state, n := range map[string]int64{
				"in_use": p.InUse, "warm": p.Warm, "cooldown": p.Cooldown, "free": p.Free, "reserved": p.Reserved,
			} {
				m.poolAddresses.WithLabelValues(ref.Kind, ref.Namespace, ref.Name, p.Family, state).Set(float64(n))
			}
		}
	}
	m.knownPools = all
}
