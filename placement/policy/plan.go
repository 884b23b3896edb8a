// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
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
	// Same says that the wish is the one that Has was planned from.
	Same bool
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
}

// Plan decides. What has no room elsewhere stays where it is.
func (w *Wish) Plan(s Situation) (Plan, error) {
	found, err := w.candidates(s.Clusters)
	if err != nil {
		return Plan{}, err
	}
	p := &planning{Wish: w, Situation: s, Plan: Plan{Wanted: map[string]int64{}}}
	nowhere := len(w.Spec.Clusters.Names) == 0 && w.Spec.Clusters.Selector == nil
	switch {
	case nowhere:
		return p.Plan, nil
	case w.Spec.Replicas.Mode == v1alpha1.ReplicasSingle:
		p.single(p.ordered(found))
	case w.Spec.Replicas.Mode == v1alpha1.ReplicasDivide && s.Replicas != nil:
		err = p.divide(p.limited(p.ordered(found)))
	default:
		p.duplicate(p.limited(p.ordered(found)))
	}
	return p.Plan, err
}

// planning is a plan in the making.
type planning struct {
	*Wish
	Situation
	Plan
	reasons []string
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

// single takes the first cluster that will do.
func (p *planning) single(found []candidate) {
	for _, level := range []fitness{fit, staying} {
		for _, c := range found {
			_, has := p.Has[c.Name]
			if c.fitness >= level && (level == fit || has) && p.fits(c) {
				p.Wanted[c.Name] = 0
				return
			}
		}
	}
	p.keep("no cluster")
}

// duplicate takes all clusters that will do.
func (p *planning) duplicate(found []candidate) {
	for _, c := range found {
		if c.fitness != leaving && p.fits(c) {
			p.Wanted[c.Name] = 0
		}
	}
	if len(p.Wanted) == 0 {
		p.keep("no cluster")
	} else if len(p.reasons) > 0 {
		p.Short = "some clusters have no room for it: " + strings.Join(p.reasons, ", ")
	}
}

// keep leaves what has no replacement where it is.
func (p *planning) keep(what string) {
	for name := range p.Has {
		p.Wanted[name] = 0
	}
	p.Short = what + " takes it"
	if len(p.reasons) > 0 {
		p.Short += ": " + strings.Join(p.reasons, ", ")
	}
}
