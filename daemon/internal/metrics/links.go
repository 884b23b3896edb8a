// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// LinkMetrics has the metrics of netwatcher. It implements netwatcher.Observer except RecordEvent.
type LinkMetrics struct {
	steps      *prometheus.CounterVec
	rounds     *prometheus.HistogramVec
	lastStatus atomic.Pointer[v1.NodeNetworkStatus]
}

// registerLinks registers the metrics of the host's links and network cards. attached returns the PCI
// addresses of the devices that Pods have.
func registerLinks(r prometheus.Registerer, attached func() []string) *LinkMetrics {
	l := &LinkMetrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_host_link_changes_total",
			Help: "Changes of the host's links, by op (set-up, delete, create, update, update-peers, flush-learned, filter-tags, allow-tags) and result (ok, error). Updates without a change of networks mean that another program changes Patchbay's links.",
		}, []string{"op", "result"}),
		rounds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_host_links_reconcile_duration_seconds", Buckets: durationBuckets(),
			Help: "Reconciliations of the host's links with the networks, by result (ok, error).",
		}, []string{"result"}),
	}
	r.MustRegister(l.steps, l.rounds)
	for _, state := range []string{v1.LinkUp, v1.LinkDown, v1.LinkError, v1.LinkChangePending} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "patchbay_host_links", Help: "Host links of Patchbay, and NICs that networks use directly, by state.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return l.count(state) }))
	}
	registerGauge(r, "patchbay_host_networks_refused", "Networks that get no link on this node.", func() float64 {
		if s := l.lastStatus.Load(); s != nil {
			return float64(len(s.Refused))
		}
		return 0
	})
	registerGauge(r, "patchbay_host_isolated", "1 while the node receives VXLAN packets from the VTEPs of other nodes only and Pods send no VLAN tags. 0 while Pods may reach other networks: see the condition Isolated of the NodeNetwork.", func() float64 {
		if s := l.lastStatus.Load(); s == nil || meta.IsStatusConditionFalse(s.Conditions, netwatcher.ConditionIsolated) {
			return 0
		}
		return 1
	})
	r.MustRegister(&functionGauge{links: l, attached: attached, GaugeVec: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "patchbay_sriov_functions",
		Help: "SR-IOV virtual functions of the node, by physical function (parent) and state: attached (a Pod on a network of type sriov has it) or free.",
	}, []string{"parent", "state"})})
	return l
}

// functionGauge counts virtual functions at each scrape.
type functionGauge struct {
	*prometheus.GaugeVec
	links    *LinkMetrics
	attached func() []string
	mu       sync.Mutex // guards the GaugeVec during a scrape
}

// Collect implements prometheus.Collector.
func (g *functionGauge) Collect(values chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Reset()
	if s := g.links.lastStatus.Load(); s != nil {
		g.count(s.NICs)
	}
	g.GaugeVec.Collect(values)
}

func (g *functionGauge) count(nics []v1.NIC) {
	var attached []string
	for i := range nics {
		nic := &nics[i]
		if nic.SRIOV == nil {
			continue
		}
		if attached == nil {
			attached = g.attached()
		}
		inUse, free := g.WithLabelValues(nic.Name, "attached"), g.WithLabelValues(nic.Name, "free")
		for j := range nic.SRIOV.Functions {
			if _, found := slices.BinarySearch(attached, nic.SRIOV.Functions[j].Address); found {
				inUse.Inc()
			} else {
				free.Inc()
			}
		}
	}
}

// count returns the number of links in a state.
func (l *LinkMetrics) count(state string) (n float64) {
	if s := l.lastStatus.Load(); s != nil {
		for i := range s.Links {
			if s.Links[i].State == state {
				n++
			}
		}
	}
	return n
}

// ObserveStep implements netwatcher.Observer.
func (l *LinkMetrics) ObserveStep(op netwatcher.Op, err error) {
	l.steps.WithLabelValues(string(op), outcome(err)).Inc()
}

// ObserveReconcile implements netwatcher.Observer.
func (l *LinkMetrics) ObserveReconcile(took time.Duration, err error, status *v1.NodeNetworkStatus) {
	l.rounds.WithLabelValues(outcome(err)).Observe(took.Seconds())
	if status != nil {
		l.lastStatus.Store(status)
	}
}

// outcome returns the label of a result.
func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
