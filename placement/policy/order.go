// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

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
