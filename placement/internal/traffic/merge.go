// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Input is what the endpoints of one Service depend on.
type Input struct {
	// Segment of the Service's network.
	Segment *Segment
	// Reports are the ready endpoints of each cluster, as it reports them. A cluster with an entry has the Service, and
	// an agent that writes EndpointSlices.
	Reports map[string][]v1alpha1.TrafficEndpoints
	// Ports of the Service, by the cluster that reports. A cluster's endpoints with another port go to no other cluster.
	Ports map[string][]v1alpha1.TrafficPort
	// Replacements are the clusters that keep a workload that leaves another one: first of all, their endpoints go to
	// the other clusters.
	Replacements map[Replacement]bool
	// Withdrawn are the workloads whose endpoints no other cluster gets.
	Withdrawn []v1alpha1.WithdrawnTraffic
	// Lost are the clusters whose endpoints no other cluster gets, because they are assumed lost, or are gone.
	Lost map[string]bool
}

// Replacement is a cluster that keeps a workload that leaves another one.
type Replacement struct {
	// Cluster that keeps it.
	Cluster v1alpha1.ClusterName
	// Work is the name of the workload's Work.
	Work string
}

// Output is the endpoints that the Service gets.
type Output struct {
	// Endpoints of the other clusters, by the cluster that gets them.
	Endpoints map[string][]v1alpha1.TrafficEndpoints
	// Conflicts are the addresses that go to no other cluster because two clusters may have them, with the clusters'
	// names, sorted.
	Conflicts []string
	// Truncated names a cluster that gets not all endpoints; "" for none.
	Truncated string
}

// Merge computes which endpoints of the others each cluster gets.
func Merge(in Input) Output {
	out := Output{Endpoints: map[string][]v1alpha1.TrafficEndpoints{}}
	valid := slices.DeleteFunc(validEndpoints(in, &out), func(e v1alpha1.TrafficEndpoints) bool { return isWithdrawn(in, e) })
	slices.SortStableFunc(valid, func(a, b v1alpha1.TrafficEndpoints) int {
		return cmp.Compare(in.rank(a), in.rank(b))
	})
	for _, cluster := range slices.Sorted(maps.Keys(in.Reports)) {
		if !in.Segment.Reaches(cluster) {
			continue
		}
		var remote []v1alpha1.TrafficEndpoints
		for _, e := range valid {
			if string(e.Cluster) != cluster {
				remote = append(remote, e)
			}
		}
		remote, truncated := Bound(remote)
		slices.SortFunc(remote, compareEndpoints)
		out.Endpoints[cluster] = remote
		if truncated && out.Truncated == "" {
			out.Truncated = cluster
		}
	}
	return out
}

// rank is 0 for endpoints that replace others.
func (in Input) rank(e v1alpha1.TrafficEndpoints) int {
	if in.Replacements[Replacement{Cluster: e.Cluster, Work: e.Work}] {
		return 0
	}
	return 1
}

// validEndpoints returns the endpoints of all clusters that pass the rules for ports and addresses, in a stable order.
// Each report is bounded for itself.
func validEndpoints(in Input, out *Output) (valid []v1alpha1.TrafficEndpoints) {
	reports := map[string][]v1alpha1.TrafficEndpoints{}
	for cluster, report := range in.Reports {
		reports[cluster], _ = Bound(withPorts(report, in.Ports[cluster]))
	}
	in.Reports = reports
	owners := reporters(in)
	conflicts := map[netip.Addr]string{}
	for _, cluster := range slices.Sorted(maps.Keys(in.Reports)) {
		if !in.Segment.Reaches(cluster) {
			continue
		}
		for _, e := range in.Reports[cluster] {
			e.Cluster = v1alpha1.ClusterName(cluster)
			e.Addresses = slices.DeleteFunc(slices.Clone(e.Addresses), func(text string) bool {
				a, err := netip.ParseAddr(text)
				if err != nil || a.String() != text || !in.Segment.contains(a) {
					return true
				}
				if owner := in.Segment.poolOwner(a); owner != "" && owner != cluster {
					conflicts[a] = fmt.Sprintf("%s of %s is in the pool of %s", a, cluster, owner)
					return true
				}
				if other := owners[a]; len(other) > 1 {
					conflicts[a] = fmt.Sprintf("%s is in %s and in %s", a, other[0], other[1])
					return true
				}
				return false
			})
			if len(e.Addresses) > 0 {
				valid = append(valid, e)
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(conflicts), netip.Addr.Compare) {
		out.Conflicts = append(out.Conflicts, conflicts[a])
	}
	slices.SortFunc(valid, compareEndpoints)
	return valid
}

// withPorts returns the endpoints of a report whose ports are the Service's, each at most once, with what the Service says
// of them. Another port could be one that no API server takes.
func withPorts(report []v1alpha1.TrafficEndpoints, service []v1alpha1.TrafficPort) (valid []v1alpha1.TrafficEndpoints) {
	for _, e := range report {
		var ports []v1alpha1.TrafficPort
		isSame := func(a, b v1alpha1.TrafficPort) bool { return a.Name == b.Name && a.Protocol == b.Protocol }
		for _, p := range e.Ports {
			i := slices.IndexFunc(service, func(s v1alpha1.TrafficPort) bool { return isSame(s, p) })
			if i < 0 || slices.ContainsFunc(ports, func(other v1alpha1.TrafficPort) bool { return isSame(other, p) }) {
				break
			}
			p.AppProtocol = service[i].AppProtocol
			ports = append(ports, p)
		}
		if len(ports) == len(e.Ports) {
			e.Ports = ports
			valid = append(valid, e)
		}
	}
	return valid
}

// reporters returns the clusters that report an address and may have it, sorted.
func reporters(in Input) map[netip.Addr][]string {
	all := map[netip.Addr][]string{}
	for _, cluster := range slices.Sorted(maps.Keys(in.Reports)) {
		if !in.Segment.Reaches(cluster) {
			continue
		}
		for _, e := range in.Reports[cluster] {
			for _, text := range e.Addresses {
				a, err := netip.ParseAddr(text)
				if owner := in.Segment.poolOwner(a); err == nil && (owner == "" || owner == cluster) && !slices.Contains(all[a], cluster) {
					all[a] = append(all[a], cluster)
				}
			}
		}
	}
	return all
}

func isWithdrawn(in Input, e v1alpha1.TrafficEndpoints) bool {
	return in.Lost[string(e.Cluster)] || slices.ContainsFunc(in.Withdrawn, func(w v1alpha1.WithdrawnTraffic) bool {
		return w.Cluster == e.Cluster && w.Work == e.Work
	})
}

// compareEndpoints orders by cluster, workload, ports and the first address.
func compareEndpoints(a, b v1alpha1.TrafficEndpoints) int {
	first := func(e v1alpha1.TrafficEndpoints) string {
		if len(e.Addresses) == 0 {
			return ""
		}
		return e.Addresses[0]
	}
	return cmp.Or(
		cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Work, b.Work),
		slices.CompareFunc(a.Ports, b.Ports, comparePorts), cmp.Compare(first(a), first(b)),
	)
}

func comparePorts(a, b v1alpha1.TrafficPort) int {
	number := func(p *int32) int32 {
		if p == nil {
			return 0
		}
		return *p
	}
	return cmp.Or(
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(number(a.Port), number(b.Port)), cmp.Compare(a.AppProtocol, b.AppProtocol),
	)
}
