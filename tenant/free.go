// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"math/bits"

	"github.com/patchbay-cni/patchbay/network"
)

// free returns the lowest ID of the ranges that is not in use and that skip does
// not refuse. Full pages cost one comparison each.
func (b *Book) free(kind, device string, ranges network.VNIRanges, skip func(network.Place) bool) (network.Place, bool) {
	lowest, found := network.Place{}, false
	for _, r := range ranges {
		last := r.Last
		if found {
			last = min(last, lowest.ID-1)
		}
		if p, ok := b.freeIn(pool{kind, device}, r.First, last, skip); ok {
			lowest, found = p, true
		}
	}
	return lowest, found
}

func (b *Book) freeIn(in pool, first, last int, skip func(network.Place) bool) (network.Place, bool) {
	for number := first / pageIDs; number <= last/pageIDs; number++ {
		open := ^uint64(0)
		if p := b.pages[pageKey{in, number}]; p != nil {
			open = ^p.used
		}
		if number == first/pageIDs {
			open &^= 1<<(first%pageIDs) - 1
		}
		for ; open != 0; open &= open - 1 {
			place := network.Place{Kind: in.kind, Device: in.device, ID: number*pageIDs + bits.TrailingZeros64(open)}
			if place.ID > last {
				return network.Place{}, false
			}
			if skip == nil || !skip(place) {
				return place, true
			}
		}
	}
	return network.Place{}, false
}
