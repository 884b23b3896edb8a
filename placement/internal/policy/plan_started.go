// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// planStarted plans an object that runs once and has started, or may have. It stays in the clusters in which it has
// started, whatever the policy asks, and goes to no other one. When it has finished, a cluster that must be
// left does not keep it. A policy that wants the object whole in each cluster also starts it in clusters in
// which it has never started, in as many as its count leaves after those in which it has.
func (p *EffectivePolicy) planStarted(in PlanInput, selected []candidate) (Plan, error) {
	kept, unwanted := p.keptStarted(in, selected)
	plan := Plan{Targets: atZero(kept), Divided: p.divides(in)}
	switch {
	case len(kept) > 0 && plan.Divided:
		result, err := p.divideStarted(in, kept, selected)
		if err != nil {
			return Plan{}, err
		}
		maps.Copy(plan.Targets, result.targets)
		targets := plan.Targets
		plan = result.plan(nil)
		plan.Targets = targets
	case p.Spec.Replicas.Mode == v1alpha1.ReplicasDuplicate:
		fresh := slices.DeleteFunc(slices.Clone(selected), func(c candidate) bool { return in.Started[c.Name] })
		choice := clusterChoice{p, in}
		result := p.chooseAll(in, choice.limitToCount(choice.sortCandidates(fresh)), fresh)
		maps.Copy(result.targets, plan.Targets)
		plan = result.plan(unavailableReasons(fresh))
	}
	started := strings.Join(slices.Sorted(maps.Keys(in.Started)), ", ")
	again := "To run it again, delete it and create it again"
	switch {
	case in.DeletedIn != "" && !in.Finished:
		plan.Message = fmt.Sprintf("it has started in %s and was deleted there, and does not run a second time. %s", in.DeletedIn, again)
	case unwanted != "" && in.Finished:
		plan.Message = fmt.Sprintf("it has finished in %s and does not run a second time: it stays there. %s", unwanted, again)
	case unwanted != "":
		plan.Message = fmt.Sprintf("it has started in %s, or may have, and does not run a second time: it stays there. "+
			"Wait until it has finished, or delete it and create it again", unwanted)
	case len(plan.Targets) == 0 && in.Finished:
		plan.Note = fmt.Sprintf("it has finished in %s and does not run a second time: no cluster is to have it", started)
	case len(plan.Targets) == 0:
		plan.Message = fmt.Sprintf("it has started in %s, or may have, is no longer there, and does not run a second time. %s", started, again)
	default:
		return plan, nil
	}
	if plan.Note == "" {
		plan.Reason = v1alpha1.ReasonRunsOnce
	}
	return plan, nil
}

// keptStarted returns the clusters that keep an object that runs once, with its replicas. Unwanted names those
// of them that the policy would have it leave. A part of a divided object stays also where it has not started
// yet. A removal is taken back where the object may stay.
func (p *EffectivePolicy) keptStarted(in PlanInput, selected []candidate) (kept map[string]int64, unwanted string) {
	kept = map[string]int64{}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(in.Assigned)) {
		i := slices.IndexFunc(selected, func(c candidate) bool { return c.Name == name })
		replaced := in.Returned[name] || i >= 0 && selected[i].DeclaredLost
		if !in.Started[name] && (replaced || !p.divides(in)) {
			continue
		}
		leaves := i < 0 || p.leavesStarted(selected[i])
		switch {
		case leaves && in.BeingRemoved[name]: // a user, or a drain of a finished one, has ordered it
			continue
		case i >= 0 && in.Finished && selected[i].eligibility == mustLeave:
			continue
		case leaves && (!in.Finished || i < 0): // a finished one leaves when the drain has a slot for it
			names = append(names, name)
		}
		kept[name] = in.Assigned[name]
	}
	if count := p.Spec.Clusters.Count; count != nil && len(kept) > int(*count) && len(names) == 0 && !in.Finished {
		names = slices.Sorted(maps.Keys(kept))
	}
	return kept, strings.Join(names, ", ")
}

// leavesStarted tells whether an object that can run again would leave the cluster.
func (p *EffectivePolicy) leavesStarted(c candidate) bool {
	return c.Lost || c.DeclaredLost || c.IsDraining() || c.hasTaint(v1alpha1.TaintNoExecute, p.Spec.Clusters.Tolerations)
}

// divideStarted keeps the first division of the replicas: those that have succeeded would run again in another
// cluster. Only a number of replicas that the user has changed is divided, between the same clusters.
func (p *EffectivePolicy) divideStarted(in PlanInput, kept map[string]int64, selected []candidate) (allocation, error) {
	sum := int64(0)
	for _, n := range kept {
		sum += n
	}
	if sum == *in.Replicas {
		return allocation{targets: kept, divided: true}, nil
	}
	rows := slices.DeleteFunc(slices.Clone(selected), func(c candidate) bool {
		_, ok := kept[c.Name]
		return !ok
	})
	for i := range rows {
		rows[i].eligibility = max(rows[i].eligibility, mayStay)
	}
	in.PolicyUnchanged, in.Leaving = true, nil
	if len(rows) < len(kept) { // the policy no longer selects a cluster: there is no weight to divide by
		return allocation{targets: kept, divided: true}, nil
	}
	return p.divideReplicas(in, rows)
}
