// SPDX-License-Identifier: Apache-2.0

package cluster

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of the leader.
type metrics struct {
	writes *prometheus.CounterVec
	stale  prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_service_writes_total",
			Help: "Writes of what Services on networks have, by resource and verb.",
		}, []string{"resource", "verb"}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_service_stale_total",
			Help: "Writes that the API server refused since they were planned from an older version; they are planned again.",
		}),
	}
	r.MustRegister(m.writes, m.stale)
	return m
}
