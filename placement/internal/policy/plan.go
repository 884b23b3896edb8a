// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/apportion"
)

// Plan is what each cluster is to have in the end.
type Plan struct {
	// Targets clusters with their replicas (0 when not Counted).
	Targets map[string]int64
	// Divided says that replicas are divided.
	Divided bool
	// Message says what has no room, where and why; empty: all has.
	Message string
	// Reason of Short: Unschedulable, NoClusterSelected or WaitingForCluster.
	Reason string
}

// Plan decides. What has no room elsewhere stays where it is. An error, of the type *Error,
// leaves everything where it is.
func (w *EffectivePolicy) Plan(s PlanInput) (Plan, error) {
	if w.Source == v1alpha1.SourceAnnotation && len(w.Spec.Clusters.Names) == 0 {
		return Plan{Targets: map[string]int64{}}, nil // the order to remove it everywhere
	}
	found, err := w.candidates(s.Clusters, s.Assigned)
	if err != nil {
		return Plan{}, err
	}
	if len(found) == 0 {
		return Plan{}, &Error{
			Reason: v1alpha1.ReasonNoClusterSelected, Object: w.Source, Field: "spec.clusters",
			Message: "no Cluster that is accepted is selected: the object stays where it is. To remove it, run kubectl patchbay remove",
		}
	}
	p := &planner{EffectivePolicy: w, PlanInput: s, Plan: Plan{Targets: map[string]int64{}}}
	for i, c := range found {
		if s.VolumeClaims[c.Name] != "" && c.eligibility == mustLeave {
			found[i].eligibility = mayStay // its data cannot leave with it
		}
		if why := c.unavailableReason(); why != "" {
			p.notReporting = append(p.notReporting, why)
		}
	}
	switch {
	case w.Spec.Replicas.Mode == v1alpha1.ReplicasSingle:
		p.chooseOne(p.sortCandidates(found))
	case w.Spec.Replicas.Mode == v1alpha1.ReplicasDivide && s.Replicas != nil:
		err = p.divideReplicas(p.limitToCount(p.sortCandidates(found)))
	default:
		p.chooseAll(p.limitToCount(p.sortCandidates(found)), found)
	}
	if err == nil && len(p.Targets) == 0 {
		p.keepAssigned() // only an order removes it everywhere
	}
	if err == nil {
		err = p.keepVolumes(found)
	}
	return p.Plan, err
}

// planner is a plan in the making.
type planner struct {
	*EffectivePolicy
	PlanInput
	Plan
	capacityReasons []string
	notReporting    []string // what selected clusters that do not report say of themselves
}

// candidate is a cluster that a wish allows.
type candidate struct {
	*Cluster
	eligibility
	rank int // the place in the wish's order
}

// eligibility is what a cluster may be used for.
type eligibility int

const (
	// ineligible: not at all.
	ineligible eligibility = iota
	// mustLeave: what is there stays until there is room elsewhere.
	mustLeave
	// mayStay: what is there stays, nothing new comes.
	mayStay
	// eligible for anything.
	eligible
)

// candidates returns the clusters that the wish names or selects, in its order. has says which
// have the object.
func (w *EffectivePolicy) candidates(all []Cluster, has map[string]int64) ([]candidate, error) {
	choice := w.Spec.Clusters
	if len(choice.Names) == 0 && choice.Selector == nil {
		return nil, nil
	}
	var found []candidate
	for i := range all {
		c := &all[i]
		rank := 0
		if len(choice.Names) > 0 {
			if rank = slices.Index(choice.Names, v1alpha1.ClusterName(c.Name)); rank < 0 {
				continue
			}
		}
		ok, err := selectorMatches(choice.Selector, c.Labels)
		if err != nil {
			return nil, selectorError(w.Source, "spec.clusters.selector", err)
		}
		_, there := has[c.Name]
		if f := w.eligibilityOf(c, there); ok && f != ineligible {
			found = append(found, candidate{c, f, rank})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return strings.Compare(a.Name, b.Name)
	})
	return found, w.checkClustersExist(all)
}

// eligibilityOf says what a cluster may be used for by this wish. Taking a cluster out of the inventory,
// or its acceptance, is no order to remove what it has.
func (w *EffectivePolicy) eligibilityOf(c *Cluster, has bool) eligibility {
	switch out := c.Deleting || !c.Spec.Accepted; {
	case out && !has && !w.NamesClusters:
		return ineligible
	case c.Lost, c.IsDraining() && !c.DrainLimitReached, w.hasUntoleratedTaint(c, v1alpha1.TaintNoExecute):
		return mustLeave
	case out, c.IsDraining(), c.Spec.Unschedulable, w.hasUntoleratedTaint(c, v1alpha1.TaintNoSchedule), c.Reachability != Reachable:
		return mayStay
	}
	return eligible
}

// hasUntoleratedTaint says that the cluster has a taint of this effect that the wish does not
// tolerate.
func (w *EffectivePolicy) hasUntoleratedTaint(c *Cluster, effect v1alpha1.TaintEffect) bool {
	for _, t := range c.Spec.Taints {
		if t.Effect == effect && !slices.ContainsFunc(w.Spec.Clusters.Tolerations, func(o v1alpha1.Toleration) bool {
			return (o.Key == "" || o.Key == t.Key) && (o.Value == "" || o.Value == t.Value) &&
				(o.Effect == "" || o.Effect == t.Effect)
		}) {
			return true
		}
	}
	return false
}

// checkClustersExist checks that clusters that are named exist.
func (w *EffectivePolicy) checkClustersExist(all []Cluster) error {
	for i, name := range w.Spec.Clusters.Names {
		if slices.ContainsFunc(all, func(c Cluster) bool { return c.Name == string(name) }) {
			continue
		}
		e := &Error{
			Reason: v1alpha1.ReasonUnknownCluster, Object: w.Source, Field: fmt.Sprintf("spec.clusters.names[%d]", i),
			Message: fmt.Sprintf("there is no Cluster %q", name),
		}
		if w.Source == "annotation" {
			e.Object, e.Field = "", "metadata.annotations["+v1alpha1.ClustersAnnotation+"]"
		}
		return e
	}
	return nil
}

// chooseOne takes the cluster that has the object, else the first that will do.
func (p *planner) chooseOne(found []candidate) {
	for _, c := range found {
		if _, has := p.Assigned[c.Name]; has && c.eligibility >= mayStay {
			if p.Targets[c.Name] = 0; c.unavailableReason() != "" && p.Unconfirmed[c.Name] {
				p.unschedulablef("%s may not have it as it is", c.Name)
			}
			return
		}
	}
	for _, c := range found {
		if c.eligibility == eligible && p.hasRoom(c) {
			p.Targets[c.Name] = 0
			return
		}
	}
}

// chooseAll takes all clusters that will do, and names those of all candidates that do not
// report.
func (p *planner) chooseAll(found, all []candidate) {
	for _, c := range found {
		if c.eligibility != mustLeave && p.hasRoom(c) {
			p.Targets[c.Name] = 0
		}
	}
	missing := slices.ContainsFunc(all, func(c candidate) bool {
		_, wanted := p.Targets[c.Name]
		return c.unavailableReason() != "" && !wanted
	})
	switch {
	case missing && p.Spec.Clusters.Count == nil:
		p.unschedulablef("some clusters do not have it yet")
	case len(p.capacityReasons) > 0:
		p.notReporting = nil // they have it
		p.unschedulablef("some clusters have no room for it")
	}
}

// divideReplicas shares the replicas out. A cluster that is leaving counts as full, and what
// then has no place stays where it is.
func (p *planner) divideReplicas(found []candidate) error {
	p.Divided = true
	rows := make([]apportion.Cluster, 0, len(found))
	for _, c := range found {
		rows = append(rows, p.divisionInput(c))
	}
	result, err := apportion.Divide(*p.Replicas, rows)
	if err != nil {
		return &Error{Reason: "InvalidReplicas", Object: p.Source, Field: "spec.replicas", Message: err.Error()}
	}
	for _, s := range result.Shares {
		if s.Replicas > 0 {
			p.Targets[s.Name] = s.Replicas
		}
	}
	if *p.Replicas == 0 {
		p.placeZeroReplicas(found)
	}
	p.keepUnplaced(result.Unplaced)
	return nil
}

// divisionInput is one cluster of the division.
func (p *planner) divisionInput(c candidate) apportion.Cluster {
	r := p.Spec.Replicas
	row := apportion.Cluster{Name: c.Name, Weight: 1, Min: int64(r.Min[c.Name])}
	if len(r.Weights) > 0 {
		row.Weight = int64(r.Weights[c.Name])
	}
	if limit, ok := r.Max[c.Name]; ok {
		row.Max = new(int64(limit))
	}
	if p.PolicyUnchanged {
		row.Current = p.Assigned[c.Name]
	}
	room, why := p.Capacity(c.Name)
	switch {
	case c.eligibility == mustLeave:
		room, why = new(int64(0)), "it is being emptied"
	case c.eligibility == mayStay && (room == nil || *room > p.Assigned[c.Name]):
		if room, why = new(p.Assigned[c.Name]), "it takes nothing new"; c.unavailableReason() != "" {
			why = "it does not report"
		}
	}
	row.Capacity = room
	if room != nil {
		p.capacityReasons = append(p.capacityReasons, fmt.Sprintf("%s has room for %d (%s)", c.Name, *room, why))
	}
	return row
}

// placeZeroReplicas keeps an object without replicas where it is, or gives it to the first.
func (p *planner) placeZeroReplicas(found []candidate) {
	if slices.ContainsFunc(found, func(c candidate) bool { return c.eligibility == eligible }) {
		found = slices.DeleteFunc(slices.Clone(found), func(c candidate) bool { return c.eligibility == mustLeave })
	}
	for i, c := range found {
		if _, has := p.Assigned[c.Name]; has || i == 0 && len(p.Assigned) == 0 {
			p.Targets[c.Name] = 0
		}
	}
	if len(p.Targets) == 0 && len(found) > 0 {
		p.Targets[found[0].Name] = 0
	}
}

// keepUnplaced leaves replicas that have no room elsewhere where they are.
func (p *planner) keepUnplaced(unplaced int64) {
	if unplaced == 0 {
		return
	}
	p.unschedulablef("%d of %d replicas have no room", unplaced, *p.Replicas)
	for _, name := range slices.Sorted(maps.Keys(p.Assigned)) {
		more := min(unplaced, max(0, p.Assigned[name]-p.Targets[name]))
		if more > 0 {
			p.Targets[name] += more
			unplaced -= more
		}
	}
	if len(p.Targets) == 0 { // without replicas yet, but it keeps its place
		for name := range p.Assigned {
			p.Targets[name] = 0
		}
	}
}

// sortCandidates puts clusters that have the object before others, within the same fitness,
// and drops those that take nothing new and have nothing.
func (p *planner) sortCandidates(found []candidate) []candidate {
	found = slices.DeleteFunc(slices.Clone(found), func(c candidate) bool {
		_, has := p.Assigned[c.Name]
		return !has && c.eligibility != eligible
	})
	slices.SortStableFunc(found, func(a, b candidate) int {
		return p.preferenceRank(a) - p.preferenceRank(b)
	})
	return found
}

// preferenceRank is less for what is better. When names are given in a new order, the
// order counts; else what is there stays.
func (p *planner) preferenceRank(c candidate) int {
	_, has := p.Assigned[c.Name]
	switch {
	case c.eligibility == mustLeave:
		return 3
	case has && p.BeingRemoved[c.Name]:
		return 1
	case has:
		return 0
	}
	return 2
}

// limitToCount takes as many clusters as the policy's count says, of as many values of
// the spread label as there are.
func (p *planner) limitToCount(found []candidate) []candidate {
	count := p.Spec.Clusters.Count
	if count == nil || len(found) <= int(*count) {
		return found
	}
	var chosen []candidate
	used := map[string]int{}
	for len(chosen) < int(*count) {
		best := 0
		for i, c := range found {
			if p.isPreferred(c, found[best], used) {
				best = i
			}
		}
		chosen = append(chosen, found[best])
		used[found[best].Labels[p.Spec.Clusters.Spread]]++
		found = slices.Delete(found, best, best+1)
	}
	return chosen
}

// isPreferred says that a is the better choice: what is there stays, then the value of the
// spread label that is used least; else the order decides.
func (p *planner) isPreferred(a, b candidate, used map[string]int) bool {
	if pa, pb := p.preferenceRank(a), p.preferenceRank(b); pa != pb {
		return pa < pb
	}
	key := p.Spec.Clusters.Spread
	return key != "" && used[a.Labels[key]] < used[b.Labels[key]]
}

// hasRoom says that a cluster has room for the whole object.
func (p *planner) hasRoom(c candidate) bool {
	if _, has := p.Assigned[c.Name]; has {
		return true
	}
	room, why := p.Capacity(c.Name)
	if room != nil && *room < p.totalReplicas() {
		p.capacityReasons = append(p.capacityReasons, fmt.Sprintf("%s has room for %d (%s)", c.Name, *room, why))
		return false
	}
	return true
}

// totalReplicas is the number of replicas of an object that is not divided.
func (p *planner) totalReplicas() int64 {
	if p.Replicas == nil {
		return 1
	}
	return *p.Replicas
}

// keepAssigned leaves what has no replacement where it is.
func (p *planner) keepAssigned() {
	for name := range p.Assigned {
		p.Targets[name] = 0
	}
	if p.Message == "" {
		p.unschedulablef("no cluster takes it")
	}
}

// keepVolumes keeps the object in clusters that have its volumes: without replicas where there are
// fewer in all. It refuses a plan that moves the object, or replicas, away from them.
func (p *planner) keepVolumes(found []candidate) error {
	away := false // replicas go to where the volumes are not
	for name, n := range p.Targets {
		away = away || n > p.Assigned[name] && p.VolumeClaims[name] == ""
	}
	for _, name := range slices.Sorted(maps.Keys(p.VolumeClaims)) {
		n, ok := p.Targets[name]
		moved := p.Divided && n < p.Assigned[name] && away
		if ok && !moved {
			continue
		}
		if !moved && p.Divided && slices.ContainsFunc(found, func(c candidate) bool { return c.Name == name }) {
			p.Targets[name] = 0
			continue
		}
		return &Error{
			Reason: v1alpha1.ReasonVolumesRefused, Object: p.Source, Field: "spec.volumes",
			Message: fmt.Sprintf("PersistentVolumeClaim %s has data in %s, and volumes are not moved yet: the object stays where it is", p.VolumeClaims[name], name),
		}
	}
	return nil
}

// unschedulablef notes what has no place, and why.
func (p *planner) unschedulablef(format string, args ...any) {
	p.Message, p.Reason = fmt.Sprintf(format, args...), v1alpha1.ReasonUnschedulable
	if len(p.notReporting) > 0 {
		p.Reason = v1alpha1.ReasonWaitingForCluster
	}
	if reasons := append(slices.Clone(p.notReporting), p.capacityReasons...); len(reasons) > 0 {
		p.Message += ": " + strings.Join(reasons, ", ")
	}
}
