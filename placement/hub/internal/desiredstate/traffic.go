// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/traffic"
)

// serviceTraffic returns what the agents get about the endpoints of a Service, by cluster, and the condition
// TrafficMerged; nil unless the Service is on a stretched network.
func serviceTraffic(s *scope.Scope, d Decision) (map[string]*v1alpha1.WorkTraffic, *metav1.Condition) {
	if s.Object == nil || s.Traffic == nil || len(s.Traffic.Networks) == 0 {
		return nil, nil
	}
	networks := map[string]traffic.Network{}
	for cluster, n := range s.Traffic.Networks {
		if w := s.Works[cluster]; w != nil {
			networks[cluster] = trafficNetwork(n)
		}
	}
	segment, err := traffic.NewSegment(networks)
	if err != nil {
		c := newCondition(v1alpha1.ConditionTrafficMerged, false, v1alpha1.ReasonNotStretched, fmt.Sprintf("ClusterNetwork %s: %v", s.Traffic.Network, err))
		return nil, &c
	}
	in := traffic.Input{Segment: segment, Reports: map[string][]v1alpha1.TrafficEndpoints{}, Withdrawn: s.Traffic.Withdrawn, Lost: map[string]bool{}}
	states := targetStates(s.Assignment)
	for cluster, w := range s.Works {
		if segment.Reaches(cluster) && w.Spec.Removal == nil && w.Status.Traffic != nil && w.Status.Traffic.Revision > 0 { // its agent acknowledges
			in.Reports[cluster] = w.Status.Traffic.Endpoints
		}
		if lossOf(s, d.Policy, cluster, states[cluster]).lost {
			in.Lost[cluster] = true
		}
	}
	out := traffic.Merge(in)
	var subnets []string
	for _, subnet := range segment.Subnets() {
		subnets = append(subnets, subnet.String())
	}
	byCluster := map[string]*v1alpha1.WorkTraffic{}
	for cluster := range networks {
		t := &v1alpha1.WorkTraffic{Subnets: subnets}
		if _, ok := in.Reports[cluster]; ok {
			t.Endpoints = out.Endpoints[cluster]
			for _, w := range s.Traffic.Withdrawn {
				if string(w.Cluster) != cluster && segment.Reaches(string(w.Cluster)) && len(t.Withdrawn) < v1alpha1.MaxTargets {
					t.Withdrawn = append(t.Withdrawn, w)
				}
			}
		}
		byCluster[cluster] = t
	}
	c := trafficCondition(s, in, out)
	return byCluster, &c
}

func trafficNetwork(n *network.Network) traffic.Network {
	t := traffic.Network{VLAN: n.VLAN, VXLAN: n.VXLAN}
	for _, subnet := range []*network.Subnet{n.V4, n.V6} {
		if subnet != nil {
			t.Subnets = append(t.Subnets, traffic.Subnet{CIDR: subnet.CIDR, Start: subnet.Start, End: subnet.End})
		}
	}
	return t
}

// trafficCondition reports whether each cluster gets the endpoints of the others.
func trafficCondition(s *scope.Scope, in traffic.Input, out traffic.Output) metav1.Condition {
	reporting := slices.Sorted(maps.Keys(in.Reports))
	for _, cluster := range slices.Sorted(maps.Keys(s.Works)) {
		t := s.Works[cluster].Status.Traffic
		if t == nil || s.Works[cluster].Spec.Traffic == nil {
			continue
		}
		if message := t.Message; message != "" {
			return newCondition(v1alpha1.ConditionTrafficMerged, false, v1alpha1.ReasonTrafficRefused, cluster+": "+message)
		}
	}
	if len(out.Conflicts) > 0 {
		return newCondition(v1alpha1.ConditionTrafficMerged, false, v1alpha1.ReasonAddressConflict,
			"addresses that go to no other cluster: "+strings.Join(out.Conflicts, "; "))
	}
	for _, cluster := range reporting {
		if s.Works[cluster].Status.Traffic.Truncated {
			return newCondition(v1alpha1.ConditionTrafficMerged, false, v1alpha1.ReasonEndpointsTruncated, fmt.Sprintf(
				"%s has more than %d addresses, or more than %d combinations of workload and ports: the rest goes to no other cluster", cluster, traffic.MaxAddresses, traffic.MaxGroups))
		}
	}
	if out.Truncated != "" {
		return newCondition(v1alpha1.ConditionTrafficMerged, false, v1alpha1.ReasonEndpointsTruncated, fmt.Sprintf(
			"the other clusters have more addresses than the %d that %s gets", traffic.MaxAddresses, out.Truncated))
	}
	return newCondition(v1alpha1.ConditionTrafficMerged, true, v1alpha1.ReasonAsExpected, "")
}

// exposure is whether other clusters may send traffic to the Pods of an object in one cluster.
type exposure struct {
	// serves is true when Services of other clusters have, or may get, endpoints of the Pods.
	serves bool
	// in is a cluster that has not acknowledged that its Services have none, and cause why not; "" for none.
	in, cause string
	// replacements is the smallest number of endpoints of the Pods that stay that one of these clusters has, and
	// replacementsIn is that cluster.
	replacements   int32
	replacementsIn string
}

// exposureOf returns whether other clusters may send traffic to the object's Pods in a cluster. Since identifies the
// withdrawal that they must have acknowledged; nil: there is none. It is an answer to this withdrawal, not the absence
// of endpoints, that counts: a Work with new endpoints may be on its way.
func exposureOf(s *scope.Scope, d Decision, cluster string, since *metav1.MicroTime) (e exposure) {
	states := targetStates(s.Assignment)
	for _, name := range slices.Sorted(maps.Keys(s.Serving)) {
		works := s.Serving[name]
		if !servesFrom(works, cluster, s.Key.RecordName()) {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(works)) {
			w := works[other]
			if other == cluster || !mayHaveEndpoints(w) || lossOf(s, d.Policy, other, states[other]).lost {
				continue
			}
			if n := replacements(w, other, s.Key.RecordName(), d); !e.serves || n < e.replacements {
				e.replacements, e.replacementsIn = n, other
			}
			e.serves = true
			if e.in != "" || since != nil && acknowledges(w, cluster, s.Key.RecordName(), *since) {
				continue
			}
			e.in, e.cause = other, whyNotAcknowledged(s.Clusters[other], w)
		}
	}
	return e
}

// servesFrom reports whether a Service has endpoints of a workload in a cluster, or withdraws them.
func servesFrom(works map[string]*v1alpha1.Work, cluster, workload string) bool {
	isOfWorkload := func(e v1alpha1.TrafficEndpoints) bool { return e.Work == workload }
	if home := works[cluster]; home != nil && home.Status.Traffic != nil && slices.ContainsFunc(home.Status.Traffic.Endpoints, isOfWorkload) {
		return true
	}
	for _, w := range works {
		if t := w.Spec.Traffic; t != nil && (withdraws(t, cluster, workload) != nil || slices.ContainsFunc(t.Endpoints, func(e v1alpha1.TrafficEndpoints) bool {
			return isOfWorkload(e) && string(e.Cluster) == cluster
		})) {
			return true
		}
	}
	return false
}

// mayHaveEndpoints reports whether a Service's Work gives, or has given, a cluster endpoints of other clusters.
func mayHaveEndpoints(w *v1alpha1.Work) bool {
	neverWrote := w.Status.Revision > 0 && (w.Status.Traffic == nil || w.Status.Traffic.Revision == 0)
	neverSent := neverWrote && (w.Spec.Traffic == nil || len(w.Spec.Traffic.Endpoints) == 0)
	return !neverSent && w.Spec.Removal == nil
}

// whyNotAcknowledged returns why a cluster has not acknowledged a withdrawal. C is nil for a cluster that is not in the
// inventory.
func whyNotAcknowledged(c *v1alpha1.Cluster, w *v1alpha1.Work) string {
	switch {
	case c == nil || !clusters.IsReachable(c):
		return "it cannot be reached"
	case w.Status.Traffic != nil && w.Status.Traffic.Message != "":
		return w.Status.Traffic.Message
	}
	return fmt.Sprintf("its agent has not reported that for Service %s/%s", w.Spec.Source.Namespace, w.Spec.Source.Name)
}

// replacements returns how many endpoints a cluster has of a workload in the clusters that are to have it.
func replacements(w *v1alpha1.Work, cluster, workload string, d Decision) (n int32) {
	if t := w.Status.Traffic; t != nil && d.includes(cluster) {
		for _, e := range t.Endpoints {
			if e.Work == workload {
				n += int32(len(e.Addresses))
			}
		}
	}
	if t := w.Spec.Traffic; t != nil {
		for _, e := range t.Endpoints {
			if e.Work == workload && d.includes(string(e.Cluster)) {
				n += int32(len(e.Addresses))
			}
		}
	}
	return n
}

// withdraws returns the withdrawal of a workload's endpoints in a cluster; nil for none.
func withdraws(t *v1alpha1.WorkTraffic, cluster, workload string) *v1alpha1.WithdrawnTraffic {
	i := slices.IndexFunc(t.Withdrawn, func(w v1alpha1.WithdrawnTraffic) bool { return string(w.Cluster) == cluster && w.Work == workload })
	if i < 0 {
		return nil
	}
	return &t.Withdrawn[i]
}

// acknowledges reports whether a cluster has carried out a withdrawal.
func acknowledges(w *v1alpha1.Work, cluster, workload string, since metav1.MicroTime) bool {
	carriedOut := w.Status.Halted == nil && (w.Status.Traffic == nil || w.Status.Traffic.Revision >= w.Spec.Revision)
	if w.Spec.Traffic == nil { // the network is not stretched any more
		return carriedOut
	}
	withdrawn := withdraws(w.Spec.Traffic, cluster, workload)
	return carriedOut && w.Status.Traffic != nil && withdrawn != nil && withdrawn.Time.Equal(&since)
}
