// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// clusterChoice chooses the clusters for a plan.
type clusterChoice struct {
	*EffectivePolicy
	in PlanInput
}

// candidate is a cluster that the policy allows.
type candidate struct {
	*Cluster
	eligibility
	rank       int // position in the policy's list of names
	preference int // lower is better
}

// eligibility is what a cluster may be used for.
type eligibility int

const (
	// ineligible clusters are not used at all.
	ineligible eligibility = iota
	// mustLeave: what is there stays until there is room elsewhere.
	mustLeave
	// mayStay: what is there stays, and nothing new comes.
	mayStay
	// eligible for anything.
	eligible
)

// candidates returns the clusters that the policy names or selects, in its order.
func (p clusterChoice) candidates() ([]candidate, error) {
	choice := p.Spec.Clusters
	if len(choice.Names) == 0 && choice.Selector == nil {
		return nil, nil
	}
	var found []candidate
	for i := range p.in.Clusters {
		c := &p.in.Clusters[i]
		rank := 0
		if len(choice.Names) > 0 {
			if rank = slices.Index(choice.Names, v1alpha1.ClusterName(c.Name)); rank < 0 {
				continue
			}
		}
		ok, err := selectorMatches(choice.Selector, c.Labels)
		if err != nil {
			return nil, selectorError(p.Source, "spec.clusters.selector", err)
		}
		_, assigned := p.in.Assigned[c.Name]
		e := p.eligibilityOf(c, assigned)
		if e == mustLeave && p.in.VolumeClaims[c.Name] != "" {
			e = mayStay // its data cannot leave with it
		}
		if ok && e != ineligible {
			found = append(found, candidate{Cluster: c, eligibility: e, rank: rank})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(a.rank-b.rank, strings.Compare(a.Name, b.Name))
	})
	return found, p.checkClustersExist()
}

// eligibilityOf returns what this policy may use a cluster for. An admin who takes a cluster out of the
// inventory, or withdraws its acceptance, does not thereby order the removal of what it has.
func (p clusterChoice) eligibilityOf(c *Cluster, assigned bool) eligibility {
	switch out := c.Deleting || !c.Spec.Accepted; {
	case out && !assigned && !p.NamesClusters:
		return ineligible
	case p.Replaces(c), c.IsDraining() && !c.DrainLimitReached, c.hasTaint(v1alpha1.TaintNoExecute, p.Spec.Clusters.Tolerations):
		return mustLeave
	case out, c.IsDraining(), c.Spec.Unschedulable, c.hasTaint(v1alpha1.TaintNoSchedule, p.Spec.Clusters.Tolerations), c.Reachability != Reachable:
		return mayStay
	}
	return eligible
}

// checkClustersExist returns an error for the first name in the policy that no Cluster has.
func (p clusterChoice) checkClustersExist() error {
	for i, name := range p.Spec.Clusters.Names {
		if slices.ContainsFunc(p.in.Clusters, func(c Cluster) bool { return c.Name == string(name) }) {
			continue
		}
		e := &Error{
			Reason: v1alpha1.ReasonUnknownCluster, Object: p.Source, Field: fmt.Sprintf("spec.clusters.names[%d]", i),
			Message: fmt.Sprintf("must be a Cluster of this hub: there is no Cluster %q", name),
		}
		if p.Source == v1alpha1.SourceAnnotation {
			e.Object, e.Field = "", "metadata.annotations["+v1alpha1.ClustersAnnotation+"]"
		}
		return e
	}
	return nil
}

// sortCandidates puts the clusters that have the object first, and drops those that have nothing and
// take nothing new.
func (p clusterChoice) sortCandidates(selected []candidate) []candidate {
	usable := slices.DeleteFunc(slices.Clone(selected), func(c candidate) bool {
		_, assigned := p.in.Assigned[c.Name]
		return !assigned && c.eligibility != eligible
	})
	for i := range usable {
		usable[i].preference = p.preferenceOf(usable[i])
	}
	slices.SortStableFunc(usable, func(a, b candidate) int { return a.preference - b.preference })
	return usable
}

// preferenceOf is lower for a better candidate: the object stays where it is, if it may. A cluster that
// has begun to lose it is a worse choice than one that runs it, and a better one than one that does not
// run it yet.
func (p clusterChoice) preferenceOf(c candidate) int {
	const (
		runs = iota
		leaves
		starts
		returns
		removes
		hasRoom
		hasSomeRoom
		full
		isEmptied
	)
	_, assigned := p.in.Assigned[c.Name]
	switch {
	case c.eligibility == mustLeave:
		return isEmptied
	case assigned && p.in.BeingRemoved[c.Name]:
		return removes
	case assigned && p.in.Returned[c.Name]:
		return returns
	case assigned && p.in.Leaving[c.Name]:
		return leaves
	case assigned && p.in.Running[c.Name] == 0 && len(p.in.Leaving) > 0:
		return starts
	case assigned:
		return runs
	}
	needed := int64(1)
	if p.in.Replicas != nil {
		needed = *p.in.Replicas
	}
	if count := p.Spec.Clusters.Count; count != nil && p.divides(p.in) { // an equal part
		needed = (needed + int64(*count) - 1) / int64(*count)
	}
	switch room, _ := p.in.Capacity(c.Name); {
	case room == nil || *room >= needed:
		return hasRoom
	case *room > 0 && p.divides(p.in):
		return hasSomeRoom
	}
	return full
}

// limitToCount returns as many candidates as spec.clusters.count allows, over as many values of the
// spread label as there are. The clusters in which an object that runs once has started count, too, also
// where it is no more: each run counts.
func (p clusterChoice) limitToCount(usable []candidate) []candidate {
	if p.Spec.Clusters.Count == nil {
		return usable
	}
	left := max(0, int(*p.Spec.Clusters.Count)-len(p.in.Started))
	if len(usable) <= left {
		return usable
	}
	var chosen []candidate
	rest, spread, used := slices.Clone(usable), p.Spec.Clusters.Spread, map[string]int{}
	for _, c := range p.in.Clusters {
		if p.in.Started[c.Name] {
			used[c.Labels[spread]]++
		}
	}
	for len(chosen) < left {
		best := 0
		for i, c := range rest {
			if isPreferred(c, rest[best], spread, used) {
				best = i
			}
		}
		chosen = append(chosen, rest[best])
		used[rest[best].Labels[spread]]++
		rest = slices.Delete(rest, best, best+1)
	}
	return chosen
}

// isPreferred tells whether a is the better choice: first by preference, then by the value of the spread
// label that is used least. used counts the chosen clusters by that value.
func isPreferred(a, b candidate, spread string, used map[string]int) bool {
	if a.preference != b.preference {
		return a.preference < b.preference
	}
	return spread != "" && used[a.Labels[spread]] < used[b.Labels[spread]]
}

// unavailableReasons returns why some candidates take nothing.
func unavailableReasons(selected []candidate) []string {
	var reasons []string
	for _, c := range selected {
		if reason := c.unavailableReason(); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// DependsOnLabels tells whether a choice of clusters may differ after the labels of one Cluster have changed. In doubt it
// does.
func DependsOnLabels(choice v1alpha1.ClusterChoice, before, after map[string]string) bool {
	selectedBefore, err := selectorMatches(choice.Selector, before)
	if err != nil {
		return true
	}
	selectedAfter, err := selectorMatches(choice.Selector, after)
	if err != nil || selectedBefore != selectedAfter {
		return true
	}
	return choice.Spread != "" && before[choice.Spread] != after[choice.Spread]
}
