// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// metrics are the values of the leader; in another replica the metrics have none.
type metrics struct {
	readiness *prometheus.GaugeVec
	written   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		readiness: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_network_ready", Help: "1 if the network's link is up on all nodes, else 0. It changes at once, and the condition Ready later.",
		}, []string{"kind", "namespace", "name"}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_network_conditions_written_total", Help: "Writes of the condition Ready of networks.",
		}),
	}
	r.MustRegister(m.readiness, m.written)
	return m
}

func (m *metrics) setReady(ref network.Ref, s metav1.ConditionStatus) {
	value := 0.0
	if s == metav1.ConditionTrue {
		value = 1
	}
	m.readiness.WithLabelValues(ref.Kind, ref.Namespace, ref.Name).Set(value)
}

func (m *metrics) forget(ref network.Ref) {
	m.readiness.DeleteLabelValues(ref.Kind, ref.Namespace, ref.Name)
}
