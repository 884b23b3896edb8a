// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/divide"
)

// Plan is what each cluster is to have in the end.
type Plan struct {
	// Wanted clusters with their replicas (0 when not Counted).
	Wanted map[string]int64
	// Counted says that replicas are divided.
	Counted bool
	// Short says what has no room, where and why; empty: all has.
	Short string
	// Reason of Short: Unschedulable, NoClusterSelected or WaitingForCluster.
	Reason string
}

// Plan decides. What has no room elsewhere stays where it is. An error, of the type *Error,
// leaves everything where it is.
func (w *Wish) Plan(s Situation) (Plan, error) {
	if w.Source == SourceAnnotation && len(w.Spec.Clusters.Names) == 0 {
		return Plan{Wanted: map[string]int64{}}, nil // the order to remove it everywhere
	}
	found, err := w.candidates(s.Clusters, s.Has)
	if err != nil {
		return Plan{}, err
	}
	if len(found) == 0 {
		return Plan{}, &Error{
			Reason: v1alpha1.ReasonNoClusterSelected, Object: w.Source, Field: "spec.clusters",
			Message: "no Cluster that is accepted is selected: the object stays where it is. To remove it, run kubectl patchbay remove",
		}
	}
	p := &planning{Wish: w, Situation: s, Plan: Plan{Wanted: map[string]int64{}}}
	for i, c := range found {
		if s.Volumes[c.Name] != "" && c.fitness == leaving {
			found[i].fitness = staying // its data cannot leave with it
		}
		if why := c.waiting(); why != "" {
			p.silent = append(p.silent, why)
		}
	}
	switch {
	case w.Spec.Replicas.Mode == v1alpha1.ReplicasSingle:
		p.single(p.ordered(found))
	case w.Spec.Replicas.Mode == v1alpha1.ReplicasDivide && s.Replicas != nil:
		err = p.divide(p.limited(p.ordered(found)))
	default:
		p.duplicate(p.limited(p.ordered(found)), found)
	}
	if err == nil && len(p.Wanted) == 0 {
		p.keep() // only an order removes it everywhere
	}
	if err == nil {
		err = p.keepVolumes(found)
	}
	return p.Plan, err
}

// planning is a plan in the making.
type planning struct {
	*Wish
	Situation
	Plan
	reasons []string
	silent  []string // what selected clusters that do not report say of themselves
}

// candidate is a cluster that a wish allows.
type candidate struct {
	*Cluster
	fitness
	rank int // the place in the wish's order
}

// fitness is what a cluster may be used for.
type fitness int

const (
	// unfit: not at all.
	unfit fitness = iota
	// leaving: what is there stays until there is room elsewhere.
	leaving
	// staying: what is there stays, nothing new comes.
	staying
	// fit for anything.
	fit
)

// candidates returns the clusters that the wish names or selects, in its order. has says which
// have the object.
func (w *Wish) candidates(all []Cluster, has map[string]int64) ([]candidate, error) {
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
		ok, err := selects(choice.Selector, c.Labels)
		if err != nil {
			return nil, wrong(w.Source, "spec.clusters.selector", err)
		}
		_, there := has[c.Name]
		if f := w.fitness(c, there); ok && f != unfit {
			found = append(found, candidate{c, f, rank})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return strings.Compare(a.Name, b.Name)
	})
	return found, w.known(all)
}

// fitness says what a cluster may be used for by this wish. Taking a cluster out of the inventory,
// or its acceptance, is no order to remove what it has.
func (w *Wish) fitness(c *Cluster, has bool) fitness {
	switch out := c.Deleting || !c.Spec.Accepted; {
	case out && !has && !w.Named:
		return unfit
	case c.Lost, c.Drains() && !c.Full, w.repelled(c, v1alpha1.TaintNoExecute):
		return leaving
	case out, c.Drains(), c.Spec.Unschedulable, w.repelled(c, v1alpha1.TaintNoSchedule), c.Reach != Reachable:
		return staying
	}
	return fit
}

// repelled says that the cluster has a taint of this effect that the wish does not
// tolerate.
func (w *Wish) repelled(c *Cluster, effect v1alpha1.TaintEffect) bool {
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

// known checks that clusters that are named exist.
func (w *Wish) known(all []Cluster) error {
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

// single takes the cluster that has the object, else the first that will do.
func (p *planning) single(found []candidate) {
	for _, c := range found {
		if _, has := p.Has[c.Name]; has && c.fitness >= staying {
			if p.Wanted[c.Name] = 0; c.waiting() != "" && p.Unconfirmed[c.Name] {
				p.shortf("%s may not have it as it is", c.Name)
			}
			return
		}
	}
	for _, c := range found {
		if c.fitness == fit && p.fits(c) {
			p.Wanted[c.Name] = 0
			return
		}
	}
}

// duplicate takes all clusters that will do, and names those of all candidates that do not
// report.
func (p *planning) duplicate(found, all []candidate) {
	for _, c := range found {
		if c.fitness != leaving && p.fits(c) {
			p.Wanted[c.Name] = 0
		}
	}
	missing := slices.ContainsFunc(all, func(c candidate) bool {
		_, wanted := p.Wanted[c.Name]
		return c.waiting() != "" && !wanted
	})
	switch {
	case missing && p.Spec.Clusters.Count == nil:
		p.shortf("some clusters do not have it yet")
	case len(p.reasons) > 0:
		p.silent = nil // they have it
		p.shortf("some clusters have no room for it")
	}
}

// divide shares the replicas out. A cluster that is leaving counts as full, and what
// then has no place stays where it is.
func (p *planning) divide(found []candidate) error {
	p.Counted = true
	rows := make([]divide.Row, 0, len(found))
	for _, c := range found {
		rows = append(rows, p.row(c))
	}
	result, err := divide.Divide(*p.Replicas, rows)
	if err != nil {
		return &Error{Reason: "InvalidReplicas", Object: p.Source, Field: "spec.replicas", Message: err.Error()}
	}
	for _, s := range result.Shares {
		if s.Replicas > 0 {
			p.Wanted[s.Name] = s.Replicas
		}
	}
	if *p.Replicas == 0 {
		p.none(found)
	}
	p.stay(result.Unplaced)
	return nil
}

// row is one cluster of the division.
func (p *planning) row(c candidate) divide.Row {
	r := p.Spec.Replicas
	row := divide.Row{Name: c.Name, Weight: 1, Min: int64(r.Min[c.Name])}
	if len(r.Weights) > 0 {
		row.Weight = int64(r.Weights[c.Name])
	}
	if limit, ok := r.Max[c.Name]; ok {
		row.Max = new(int64(limit))
	}
	if p.Same {
		row.Current = p.Has[c.Name]
	}
	room, why := p.Room(c.Name)
	switch {
	case c.fitness == leaving:
		room, why = new(int64(0)), "it is being emptied"
	case c.fitness == staying && (room == nil || *room > p.Has[c.Name]):
		if room, why = new(p.Has[c.Name]), "it takes nothing new"; c.waiting() != "" {
			why = "it does not report"
		}
	}
	row.Capacity = room
	if room != nil {
		p.reasons = append(p.reasons, fmt.Sprintf("%s has room for %d (%s)", c.Name, *room, why))
	}
	return row
}

// none keeps an object without replicas where it is, or gives it to the first.
func (p *planning) none(found []candidate) {
	if slices.ContainsFunc(found, func(c candidate) bool { return c.fitness == fit }) {
		found = slices.DeleteFunc(slices.Clone(found), func(c candidate) bool { return c.fitness == leaving })
	}
	for i, c := range found {
		if _, has := p.Has[c.Name]; has || i == 0 && len(p.Has) == 0 {
			p.Wanted[c.Name] = 0
		}
	}
	if len(p.Wanted) == 0 && len(found) > 0 {
		p.Wanted[found[0].Name] = 0
	}
}

// stay leaves replicas that have no room elsewhere where they are.
func (p *planning) stay(unplaced int64) {
	if unplaced == 0 {
		return
	}
	p.shortf("%d of %d replicas have no room", unplaced, *p.Replicas)
	for _, name := range slices.Sorted(maps.Keys(p.Has)) {
		more := min(unplaced, max(0, p.Has[name]-p.Wanted[name]))
		if more > 0 {
			p.Wanted[name] += more
			unplaced -= more
		}
	}
	if len(p.Wanted) == 0 { // without replicas yet, but it keeps its place
		for name := range p.Has {
			p.Wanted[name] = 0
		}
	}
}

// ordered puts clusters that have the object before others, within the same fitness,
// and drops those that take nothing new and have nothing.
func (p *planning) ordered(found []candidate) []candidate {
	found = slices.DeleteFunc(slices.Clone(found), func(c candidate) bool {
		_, has := p.Has[c.Name]
		return !has && c.fitness != fit
	})
	slices.SortStableFunc(found, func(a, b candidate) int {
		return p.preference(a) - p.preference(b)
	})
	return found
}

// preference is less for what is better. When names are given in a new order, the
// order counts; else what is there stays.
func (p *planning) preference(c candidate) int {
	_, has := p.Has[c.Name]
	switch {
	case c.fitness == leaving:
		return 3
	case has && p.Returning[c.Name]:
		return 1
	case has:
		return 0
	}
	return 2
}

// limited takes as many clusters as the policy's count says, of as many values of
// the spread label as there are.
func (p *planning) limited(found []candidate) []candidate {
	count := p.Spec.Clusters.Count
	if count == nil || len(found) <= int(*count) {
		return found
	}
	var chosen []candidate
	used := map[string]int{}
	for len(chosen) < int(*count) {
		best := 0
		for i, c := range found {
			if p.before(c, found[best], used) {
				best = i
			}
		}
		chosen = append(chosen, found[best])
		used[found[best].Labels[p.Spec.Clusters.Spread]]++
		found = slices.Delete(found, best, best+1)
	}
	return chosen
}

// before says that a is the better choice: what is there stays, then the value of the
// spread label that is used least; else the order decides.
func (p *planning) before(a, b candidate, used map[string]int) bool {
	if pa, pb := p.preference(a), p.preference(b); pa != pb {
		return pa < pb
	}
	key := p.Spec.Clusters.Spread
	return key != "" && used[a.Labels[key]] < used[b.Labels[key]]
}

// fits says that a cluster has room for the whole object.
func (p *planning) fits(c candidate) bool {
	if _, has := p.Has[c.Name]; has {
		return true
	}
	room, why := p.Room(c.Name)
	if room != nil && *room < p.whole() {
		p.reasons = append(p.reasons, fmt.Sprintf("%s has room for %d (%s)", c.Name, *room, why))
		return false
	}
	return true
}

// whole is the number of replicas of an object that is not divided.
func (p *planning) whole() int64 {
	if p.Replicas == nil {
		return 1
	}
	return *p.Replicas
}

// keep leaves what has no replacement where it is.
func (p *planning) keep() {
	for name := range p.Has {
		p.Wanted[name] = 0
	}
	if p.Short == "" {
		p.shortf("no cluster takes it")
	}
}

// keepVolumes keeps the object in clusters that have its volumes: without replicas where there are
// fewer in all. It refuses a plan that moves the object, or replicas, away from them.
func (p *planning) keepVolumes(found []candidate) error {
	away := false // replicas go to where the volumes are not
	for name, n := range p.Wanted {
		away = away || n > p.Has[name] && p.Volumes[name] == ""
	}
	for _, name := range slices.Sorted(maps.Keys(p.Volumes)) {
		n, ok := p.Wanted[name]
		moved := p.Counted && n < p.Has[name] && away
		if ok && !moved {
			continue
		}
		if !moved && p.Counted && slices.ContainsFunc(found, func(c candidate) bool { return c.Name == name }) {
			p.Wanted[name] = 0
			continue
		}
		return &Error{
			Reason: v1alpha1.ReasonVolumesRefused, Object: p.Source, Field: "spec.volumes",
			Message: fmt.Sprintf("PersistentVolumeClaim %s has data in %s, and volumes are not moved yet: the object stays where it is", p.Volumes[name], name),
		}
	}
	return nil
}

// shortf notes what has no place, and why.
func (p *planning) shortf(format string, args ...any) {
	p.Short, p.Reason = fmt.Sprintf(format, args...), v1alpha1.ReasonUnschedulable
	if len(p.silent) > 0 {
		p.Reason = v1alpha1.ReasonWaitingForCluster
	}
	if reasons := append(slices.Clone(p.silent), p.reasons...); len(reasons) > 0 {
		p.Short += ": " + strings.Join(reasons, ", ")
	}
}
