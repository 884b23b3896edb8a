// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Room says how many replicas of the object one cluster has room for, those that it
// has included; none is no limit. Why names the limit.
type Room func(cluster string) (replicas *int64, why string)

// Situation is what a plan depends on beside the wish.
type Situation struct {
	// Clusters are all there are.
	Clusters []Cluster
	// Replicas of the object; nil for a kind without.
	Replicas *int64
	// Has says which clusters have the object or are to have it, and how many replicas.
	Has map[string]int64
	// Returning says which clusters of Has are to lose the object, by an order that can be taken back.
	Returning map[string]bool
	// Same says that the wish is the one that Has was planned from.
	Same bool
	// Unconfirmed says which clusters have not confirmed that they have the object as it is.
	Unconfirmed map[string]bool
	// Volumes names, by cluster, a claim with data of the object there: it does not leave that
	// cluster.
	Volumes map[string]string
	// Room of each cluster.
	Room Room
}

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

// planning is a plan in the making.
type planning struct {
	*Wish
	Situation
	Plan
	reasons []string
	silent  []string // what selected clusters that do not report say of themselves
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

// whole is the number of replicas of an object that is not divided.
func (p *planning) whole() int64 {
	if p.Replicas == nil {
		return 1
	}
	return *p.Replicas
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

// keep leaves what has no replacement where it is.
func (p *planning) keep() {
	for name := range p.Has {
		p.Wanted[name] = 0
	}
	if p.Short == "" {
		p.shortf("no cluster takes it")
	}
}
