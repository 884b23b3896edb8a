// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// metrics are those of the leader; another replica has the names without values.
type metrics struct {
	readiness *prometheus.GaugeVec
	written   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		readiness: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_network_ready", Help: "1 for a network whose link is up on all nodes, 0 for one whose is not; of the moment, before the condition follows.",
		}, []string{"kind", "namespace", "name"}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_network_conditions_written_total", Help: "Writes of networks' condition Ready.",
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
