// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-cni/patchbay/placement/divide"
)

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
