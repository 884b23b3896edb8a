// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// FailureMetrics counts Pods that could not be attached.
type FailureMetrics struct {
	failures *prometheus.CounterVec
}

// registerFailures registers the metrics of Pods that could not be attached.
func registerFailures(r prometheus.Registerer) *FailureMetrics {
	f := &FailureMetrics{failures: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "patchbay_attach_failures_total",
		Help: "Failed attempts to attach a Pod, by the reason of its Event and by network (kind, namespace, name). The network is empty when the failure concerns none, or one that does not exist. kubelet repeats an attempt every few seconds.",
	}, []string{"reason", "kind", "namespace", "name"})}
	r.MustRegister(f.failures)
	return f
}

// Forget removes the values of a network that was deleted.
func (f *FailureMetrics) Forget(ref network.Ref) {
	f.failures.DeletePartialMatch(prometheus.Labels{"kind": ref.Kind, "namespace": ref.Namespace, "name": ref.Name})
}

// InstrumentKubeClient counts the failures that are reported to a KubeClient.
func (f *FailureMetrics) InstrumentKubeClient(k attach.KubeClient) attach.KubeClient {
	return instrumentedKubeClient{k, f}
}

// instrumentedKubeClient is a KubeClient with counted failures.
type instrumentedKubeClient struct {
	attach.KubeClient
	metrics *FailureMetrics
}

// ReportFailure implements attach.KubeClient.
func (k instrumentedKubeClient) ReportFailure(pod *corev1.Pod, err error) string {
	reason, ref := k.KubeClient.ReportFailure(pod, err), attach.NetworkOf(err)
	k.metrics.failures.WithLabelValues(reason, ref.Kind, ref.Namespace, ref.Name).Inc()
	return reason
}
