// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// inFlightTimeout is how long an admitted network is in flight at most. One that fails after this
// webhook, at a quota for instance, conflicts with others for as long.
const inFlightTimeout = 10 * time.Second

// inFlightNetworks are the networks that this replica has admitted, and that the informer has not
// seen yet. It is not safe for concurrent use.
type inFlightNetworks struct {
	byRef     map[network.Ref]inFlightNetwork
	conflicts *conflictIndex
}

// inFlightNetwork is one of them, and when it is given up.
type inFlightNetwork struct {
	network *network.Network
	expires time.Time
}

func newInFlightNetworks() *inFlightNetworks {
	return &inFlightNetworks{byRef: map[network.Ref]inFlightNetwork{}, conflicts: newConflictIndex()}
}

// add makes n in flight, in place of an earlier version.
func (f *inFlightNetworks) add(n *network.Network, now time.Time) {
	f.remove(n.Ref)
	admitted := *n
	admitted.Created = now // older than the next one, which has no creation time yet
	f.byRef[n.Ref] = inFlightNetwork{&admitted, now.Add(inFlightTimeout)}
	f.conflicts.add(&admitted)
}

// get returns a network that is in flight, or nil.
func (f *inFlightNetworks) get(ref network.Ref) *network.Network { return f.byRef[ref].network }

func (f *inFlightNetworks) remove(ref network.Ref) {
	if entry, ok := f.byRef[ref]; ok {
		f.conflicts.remove(entry.network)
		delete(f.byRef, ref)
	}
}

// expire removes the networks that were not stored in time.
func (f *inFlightNetworks) expire(now time.Time) {
	for ref, entry := range f.byRef {
		if !now.Before(entry.expires) {
			f.remove(ref)
		}
	}
}

// checkConflict returns an error if n conflicts with a network in flight.
func (f *inFlightNetworks) checkConflict(n *network.Network) error {
	if err := network.CheckConflict(withoutCreationTime(n), f.conflicts.contenders(n)); err != nil {
		return fmt.Errorf("%w (that network is being stored at this moment: if it fails, try again in %v)", err, inFlightTimeout)
	}
	return nil
}
