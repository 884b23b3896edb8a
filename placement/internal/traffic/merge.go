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

// Bounds of the endpoints in one Work. With them, a Work with its status stays below the bound of all objects.
const (
	// MaxAddresses is how many addresses there are at most.
	MaxAddresses = 500
	// MaxGroups is how many TrafficEndpoints there are at most.
	MaxGroups = 32
)

// Input is what the endpoints of one Service depend on.
type Input struct {
	// Segment of the Service's network.
	Segment *Segment
	// Reports are the ready endpoints of each cluster, as it reports them. A cluster with an entry has the Service, and
	// an agent that writes EndpointSlices.
	Reports map[string][]v1alpha1.TrafficEndpoints
	// Withdrawn are the workloads whose endpoints no other cluster gets.
	Withdrawn []v1alpha1.WithdrawnTraffic
	// Lost are the clusters whose endpoints no other cluster gets, because they are assumed lost, or are gone.
	Lost map[string]bool
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
	valid := validEndpoints(in, &out)
	for _, cluster := range slices.Sorted(maps.Keys(in.Reports)) {
		if !in.Segment.Reaches(cluster) {
			continue
		}
		var remote []v1alpha1.TrafficEndpoints
		for _, e := range valid {
			if string(e.Cluster) != cluster && !isWithdrawn(in, e) {
				remote = append(remote, e)
			}
		}
		remote, truncated := Bound(remote)
		out.Endpoints[cluster] = remote
		if truncated && out.Truncated == "" {
			out.Truncated = cluster
		}
	}
	return out
}

// validEndpoints returns the endpoints of all clusters that pass the rules for addresses, in a stable order.
func validEndpoints(in Input, out *Output) (valid []v1alpha1.TrafficEndpoints) {
	owners := reporters(in)
	conflicts := map[netip.Addr]string{}
	for _, cluster := range slices.Sorted(maps.Keys(in.Reports)) {
		if !in.Segment.Reaches(cluster) {
			continue
		}
		for _, e := range in.Reports[cluster] {
			e := *e.DeepCopy()
			e.Cluster = v1alpha1.ClusterName(cluster)
			e.Addresses = slices.DeleteFunc(e.Addresses, func(text string) bool {
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

// Bound returns the endpoints that one Work may have, and whether there were more.
func Bound(all []v1alpha1.TrafficEndpoints) (bounded []v1alpha1.TrafficEndpoints, truncated bool) {
	left := MaxAddresses
	for _, e := range all {
		if left == 0 || len(bounded) == MaxGroups {
			return bounded, true
		}
		if len(e.Addresses) > left {
			e.Addresses, truncated = e.Addresses[:left], true
		}
		left -= len(e.Addresses)
		bounded = append(bounded, e)
	}
	return bounded, truncated
}
