// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

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
