// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkIndex is the parsed form of all networks, with the networks that this replica has admitted
// and that are not stored yet.
//
// It is a little behind the API server, and another replica does not know what this one has in
// flight. So two networks that conflict may both be admitted when they are created through two
// replicas at the same moment; the younger one then is an error on the nodes, and gets the
// condition Conflict (see conflictReporter). It is safe for concurrent use.
type networkIndex struct {
	// synced is true when all networks have been read once.
	synced atomic.Bool
	// conflictsChanged holds a value when the conflicts between networks may have changed.
	conflictsChanged chan struct{}

	mu       sync.RWMutex
	networks map[network.Ref]storedNetwork
	// stored indexes networks.
	stored *conflictIndex
	// unassigned counts, by segment, the networks that stored leaves out.
	unassigned map[network.TenantSlot]int
	inFlight   *inFlightNetworks
}

// errNotSynced is the answer until all networks have been read.
var errNotSynced = fmt.Errorf("the controller has just started and is reading the networks: %w", reserve.ErrUnavailable)

func newNetworkIndex() *networkIndex {
	return &networkIndex{
		networks: map[network.Ref]storedNetwork{}, stored: newConflictIndex(), unassigned: map[network.TenantSlot]int{},
		inFlight: newInFlightNetworks(), conflictsChanged: make(chan struct{}, 1),
	}
}

// storedNetwork is a network object as it is stored.
type storedNetwork struct {
	kube.ParsedNetwork

	// unassigned is the VLAN or VXLAN of a network that conflicts with none: one that is invalid,
	// or that admission did not assign, such as a live network of DANM. Zero for others.
	unassigned network.TenantSlot
}

// parseStored parses a network object as it is stored. Its assignment is not checked again, because
// only this package writes it.
func parseStored(obj client.Object) storedNetwork {
	n, err := network.FromObject(obj)
	stored := storedNetwork{ParsedNetwork: kube.ParsedNetwork{Version: kube.SpecVersionOf(obj), Network: n, Err: err}}
	if !canConflict(n) {
		stored.unassigned = segmentOf(specOf(obj))
	}
	return stored
}

// segmentOf returns the VLAN or VXLAN of a spec that need not be valid; zero for one without.
func segmentOf(s *v1.NetworkSpec) network.TenantSlot {
	o := s.Options
	slot, _ := segmentSlot(cmp.Or(o.Device, o.DevicePool), int(o.VLAN), int(o.VXLAN))
	return slot
}

// checkSynced returns an error until all networks have been read once.
func (x *networkIndex) checkSynced() error {
	if x.synced.Load() {
		return nil
	}
	return errNotSynced
}

// markSynced records that all networks have been read.
func (x *networkIndex) markSynced() {
	x.synced.Store(true)
	x.notifyConflictsChanged()
}

// hasVersion reports whether the index has this version of a network.
func (x *networkIndex) hasVersion(ref network.Ref, v kube.SpecVersion) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	m, ok := x.networks[ref]
	return ok && m.Version == v
}

// confirmStored moves a new network from those in flight to the stored ones, now that a watch has
// seen it. It reports false when the network may have been changed since it was admitted, and must
// be read.
func (x *networkIndex) confirmStored(ref network.Ref, v kube.SpecVersion, created time.Time) bool {
	x.mu.Lock()
	admitted := x.inFlight.get(ref)
	x.mu.Unlock()
	if admitted == nil || v.UID == "" || admitted.UID != string(v.UID) || admitted.Generation != 1 || v.Generation != 1 || v.Deleting {
		return false
	}
	n := *admitted
	n.Created = created
	x.put(ref, storedNetwork{ParsedNetwork: kube.ParsedNetwork{Version: v, Network: &n}})
	return true
}

// put stores a parsed network, unless the index has a later generation of it.
func (x *networkIndex) put(ref network.Ref, m storedNetwork) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old, known := x.networks[ref]
	if known && old.Version.UID == m.Version.UID && old.Version.Generation > m.Version.Generation {
		return
	}
	x.unindex(old)
	x.networks[ref] = m
	x.stored.add(m.Network)
	if m.unassigned != (network.TenantSlot{}) {
		x.unassigned[m.unassigned]++
	}
	if admitted := x.inFlight.get(ref); admitted != nil && admitted.Generation <= m.Version.Generation {
		x.inFlight.remove(ref)
	}
	x.notifyConflictsChanged()
}

// remove removes a network that was deleted.
func (x *networkIndex) remove(ref network.Ref) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unindex(x.networks[ref])
	delete(x.networks, ref)
	x.notifyConflictsChanged()
}

// unindex removes a network from the indexes. The zero value is in none.
func (x *networkIndex) unindex(m storedNetwork) {
	x.stored.remove(m.Network)
	if m.unassigned == (network.TenantSlot{}) {
		return
	}
	x.unassigned[m.unassigned]--
	if x.unassigned[m.unassigned] == 0 {
		delete(x.unassigned, m.unassigned)
	}
}

func (x *networkIndex) notifyConflictsChanged() {
	select {
	case x.conflictsChanged <- struct{}{}:
	default:
	}
}

// admit checks n against all stored networks and those in flight, and makes it one in flight unless
// this is a dry run: of two conflicting networks that are created at the same moment, the second is
// rejected. Before is what n is changed from, nil for a new network.
func (x *networkIndex) admit(before, n *network.Network, dryRun bool, now time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inFlight.expire(now)
	if err := x.stored.findConflict(before, n); err != nil {
		return err
	}
	if err := x.inFlight.checkConflict(n); err != nil {
		return err
	}
	if !dryRun {
		x.inFlight.add(n, now)
	}
	return nil
}

// isTaken reports whether a network has the VLAN or VXLAN of a slot, one of DANM included, or the link name
// that a tenant's network would get there. A tenant gets another slot then.
func (x *networkIndex) isTaken(slot network.TenantSlot) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inFlight.expire(time.Now())
	parent := slot.Parent()
	name := createdLinkName(&network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork}, Device: parent.Device, VLAN: parent.VLAN, VXLAN: parent.VXLAN,
	})
	if slot.Kind == network.SlotVXLAN {
		slot.Device = ""
	}
	return x.unassigned[slot] > 0 || x.stored.isTaken(slot, name) || x.inFlight.conflicts.isTaken(slot, name)
}

// lookUp returns a network for a Pod, also one that is being stored: a Pod is often created right
// after its network. It returns nil for one that does not exist or is invalid.
func (x *networkIndex) lookUp(ref network.Ref) *network.Network {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if m, ok := x.networks[ref]; ok {
		return m.Network
	}
	return x.inFlight.get(ref)
}

// isInvalid reports whether a network is stored that breaks a rule, often one that is newer than it.
func (x *networkIndex) isInvalid(ref network.Ref) bool {
	n, ok := x.get(ref)
	return ok && n.Err != nil
}

// get returns a network, valid or not; false when there is none.
func (x *networkIndex) get(ref network.Ref) (kube.ParsedNetwork, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	m, ok := x.networks[ref]
	return m.ParsedNetwork, ok
}

// refs returns all networks, valid or not, in no order.
func (x *networkIndex) refs() []network.Ref {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Keys(x.networks))
}

// contenders returns the stored networks that n could conflict with.
func (x *networkIndex) contenders(n *network.Network) []*network.Network {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.stored.contenders(n)
}

// conflictCandidates returns all networks that can conflict with another one.
func (x *networkIndex) conflictCandidates() []*network.Network {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var all []*network.Network
	for _, m := range x.networks {
		if canConflict(m.Network) {
			all = append(all, m.Network)
		}
	}
	return all
}

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
