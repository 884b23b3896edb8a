// SPDX-License-Identifier: Apache-2.0

package traffic

import (
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

// Bound returns the endpoints that one Work may have, and whether there were more. The clusters get the room in turn,
// in the order in which they come first: one with many endpoints does not suppress those of others.
func Bound(all []v1alpha1.TrafficEndpoints) (bounded []v1alpha1.TrafficEndpoints, truncated bool) {
	chosen := chooseGroups(all)
	taken := chooseAddresses(all, chosen)
	for i, e := range all {
		truncated = truncated || taken[i] < len(e.Addresses)
		if taken[i] > 0 {
			e.Addresses = slices.Clip(e.Addresses[:taken[i]])
			bounded = append(bounded, e)
		}
	}
	return bounded, truncated
}

// IsFull reports whether endpoints have no room for more.
func IsFull(bounded []v1alpha1.TrafficEndpoints) bool {
	n := 0
	for i := range bounded {
		n += len(bounded[i].Addresses)
	}
	return n >= MaxAddresses || len(bounded) >= MaxGroups
}

// chooseGroups returns indexes of the groups that there is room for: of each cluster in turn, those of one cluster
// together.
func chooseGroups(all []v1alpha1.TrafficEndpoints) (chosen [][]int) {
	var waiting [][]int // by cluster
	order := map[v1alpha1.ClusterName]int{}
	for i, e := range all {
		if len(e.Addresses) == 0 {
			continue
		}
		if _, ok := order[e.Cluster]; !ok {
			order[e.Cluster] = len(waiting)
			waiting = append(waiting, nil)
		}
		waiting[order[e.Cluster]] = append(waiting[order[e.Cluster]], i)
	}
	chosen = make([][]int, len(waiting))
	left := MaxGroups
	for found := true; found; {
		found = false
		for c := range waiting {
			if left > 0 && len(chosen[c]) < len(waiting[c]) {
				chosen[c], found = append(chosen[c], waiting[c][len(chosen[c])]), true
				left--
			}
		}
	}
	return chosen
}

// chooseAddresses returns how many addresses of each group there is room for: of each cluster in turn, and of the
// cluster's groups in turn.
func chooseAddresses(all []v1alpha1.TrafficEndpoints, chosen [][]int) (taken []int) {
	taken = make([]int, len(all))
	next := make([]int, len(chosen))
	left := MaxAddresses
	for found := true; found; {
		found = false
		for c, groups := range chosen {
			for range groups {
				i := groups[next[c]%len(groups)]
				next[c]++
				if left > 0 && taken[i] < len(all[i].Addresses) {
					taken[i], found = taken[i]+1, true
					left--
					break
				}
			}
		}
	}
	return taken
}
