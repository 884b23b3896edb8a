// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// clusterMetrics are the metrics of Clusters.
type clusterMetrics struct {
	conditions *prometheus.GaugeVec
	heartbeats *scrapedGauge
	lag        *scrapedGauge
}

// registerClusters registers the metrics of Clusters.
func registerClusters(r prometheus.Registerer) *clusterMetrics {
	m := &clusterMetrics{
		conditions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_hub_cluster_condition",
			Help: "1 if the condition (Accepted, Reachable, Drained, HubMismatch) of a Cluster is True, else 0, with its reason. A condition that the Cluster does not have has no value.",
		}, []string{"cluster", "condition", "reason"}),
		heartbeats: newScrapedGauge("patchbay_hub_cluster_last_heartbeat_timestamp_seconds",
			"Unix time at which the hub saw the last heartbeat of a cluster's agent, by the hub's clock. Clusters that have not joined have no value."),
		lag: newScrapedGauge("patchbay_agent_lag_seconds",
			"Age of the time up to which a cluster's agent has reported all changes, by its heartbeats. Moves rely on reports up to then. "+
				"It grows while the agent cannot read its cluster or reach the hub. Clusters that have not joined have no value."),
	}
	r.MustRegister(m.conditions, m.heartbeats, m.lag)
	return m
}

// observe shows the conditions of a Cluster that was created, changed or deleted.
func (m *clusterMetrics) observe(old, now *v1alpha1.Cluster, _ bool) {
	before, after := conditionsOf(old), conditionsOf(now)
	for s, value := range after {
		m.conditions.WithLabelValues(s.labelValues()...).Set(value)
	}
	for s := range before {
		if _, stays := after[s]; !stays {
			m.conditions.DeleteLabelValues(s.labelValues()...)
		}
	}
}

// clusterCondition are the labels of a Cluster's condition.
type clusterCondition struct{ cluster, condition, reason string }

// labelValues implements state.
func (c clusterCondition) labelValues() []string {
	return []string{c.cluster, c.condition, c.reason}
}

// conditionsOf returns the conditions of a Cluster, 1 for True.
func conditionsOf(c *v1alpha1.Cluster) map[clusterCondition]float64 {
	all := map[clusterCondition]float64{}
	if c == nil {
		return all
	}
	for _, condition := range c.Status.Conditions {
		switch condition.Type {
		case v1alpha1.ConditionAccepted, v1alpha1.ConditionReachable, v1alpha1.ConditionDrained, v1alpha1.ConditionHubMismatch:
		default: // an agent may add others
			continue
		}
		value := 0.0
		if condition.Status == metav1.ConditionTrue {
			value = 1
		}
		all[clusterCondition{c.Name, condition.Type, boundedClusterReason(condition.Reason)}] = value
	}
	return all
}

// boundedClusterReason returns the reason of a Cluster's condition if it is in the catalogue.
func boundedClusterReason(reason string) string {
	switch reason {
	case v1alpha1.ReasonAccepted, v1alpha1.ReasonAwaitingAcceptance, v1alpha1.ReasonNamespaceTaken,
		v1alpha1.ReasonHeartbeatReceived, v1alpha1.ReasonHeartbeatLost, v1alpha1.ReasonNeverJoined,
		v1alpha1.ReasonDraining, v1alpha1.ReasonDrained, v1alpha1.ReasonDrainBlocked, v1alpha1.ReasonAppliedWorksUnknown,
		v1alpha1.ReasonHubMismatch, v1alpha1.ReasonAsExpected, v1alpha1.ReasonDeclaredLost, v1alpha1.ReasonReportedSince:
		return reason
	}
	return otherReason
}

// scrapedGauge is a gauge with a value for each cluster, which is read at each scrape.
type scrapedGauge struct {
	*prometheus.GaugeVec

	read atomic.Pointer[func() map[string]float64]
	mu   sync.Mutex
}

func newScrapedGauge(name, help string) *scrapedGauge {
	return &scrapedGauge{GaugeVec: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"cluster"})}
}

// Collect implements prometheus.Collector.
func (g *scrapedGauge) Collect(to chan<- prometheus.Metric) {
	read := g.read.Load()
	if read == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Reset()
	for cluster, value := range (*read)() {
		g.WithLabelValues(cluster).Set(value)
	}
	g.GaugeVec.Collect(to)
}

// start reads the gauges of clusters from now on.
func (m *clusterMetrics) start(s Sources) {
	heartbeats := func() map[string]float64 {
		values := map[string]float64{}
		for cluster, at := range s.Heartbeats() {
			values[cluster] = float64(at.UnixMilli()) / 1000
		}
		return values
	}
	lag := func() map[string]float64 {
		values, now, reported := map[string]float64{}, s.Now(), s.ReportedUntil()
		for cluster := range s.Heartbeats() { // a Lease may outlast its Cluster
			if until, ok := reported[cluster]; ok {
				values[cluster] = max(0, now.Sub(until).Seconds())
			}
		}
		return values
	}
	m.heartbeats.read.Store(&heartbeats)
	m.lag.read.Store(&lag)
}
