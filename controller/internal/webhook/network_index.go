// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkIndex is what all networks mean. It is a little behind the API server, so it also
// remembers what it has let in (see admit). Another replica does not know of that: of
// two networks that conflict and are created through two replicas at the same moment
// both may be let in, and the younger one is an error on the nodes and says so in a
// condition (see referee). It is safe for concurrent use.
type networkIndex struct {
	mu       sync.RWMutex
	networks map[network.Ref]kube.ParsedNetwork
	// stored are the networks of models; coming those that were let in since.
	stored, inFlight *conflictIndex
	admitted         map[network.Ref]inFlightNetwork
	// synced says that all networks were read once.
	synced bool
	// conflictsChanged holds a value when there may be other conflicts than before.
	conflictsChanged chan struct{}
}

// errNotSynced says that the answer would be made up.
var errNotSynced = fmt.Errorf("the controller has just started and is reading the networks: %w", reserve.ErrUnavailable)

func newNetworkIndex() *networkIndex {
	return &networkIndex{
		networks: map[network.Ref]kube.ParsedNetwork{}, stored: newConflictIndex(), inFlight: newConflictIndex(),
		admitted: map[network.Ref]inFlightNetwork{}, conflictsChanged: make(chan struct{}, 1),
	}
}

// modelOf says what a network object means. The API server asks this package before it
// stores one, so what stands there of an assignment is ours.
func modelOf(obj client.Object) kube.ParsedNetwork {
	net, err := network.FromObject(obj)
	return kube.ParsedNetwork{Version: kube.SpecVersionOf(obj), Network: net, Err: err}
}

// checkSynced returns an error until all networks were read once.
func (c *networkIndex) checkSynced() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.synced {
		return nil
	}
	return errNotSynced
}

// markSynced notes that all networks were read.
func (c *networkIndex) markSynced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.synced = true
	c.notifyConflictsChanged()
}

// hasVersion reports whether the model of this version is there.
func (c *networkIndex) hasVersion(ref network.Ref, v kube.SpecVersion) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, ok := c.networks[ref]
	return ok && m.Version == v
}

// confirmStored takes over a new network that was let in, now that it is there: nothing can
// have changed it since, so it need not be read. It reports whether that is so.
func (c *networkIndex) confirmStored(ref network.Ref, v kube.SpecVersion, created time.Time) bool {
	c.mu.Lock()
	a, ok := c.admitted[ref]
	c.mu.Unlock()
	if !ok || v.UID == "" || a.network.UID != string(v.UID) || a.network.Generation != 1 || v.Generation != 1 || v.Deleting {
		return false
	}
	n := *a.network
	n.Created = created
	c.put(ref, kube.ParsedNetwork{Version: v, Network: &n})
	return true
}

// put takes over a model; a later one of the same object stays.
func (c *networkIndex) put(ref network.Ref, m kube.ParsedNetwork) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.networks[ref]
	if known && old.Version.UID == m.Version.UID && old.Version.Generation > m.Version.Generation {
		return
	}
	c.stored.remove(old.Network)
	c.networks[ref] = m
	c.stored.add(m.Network)
	if a, ok := c.admitted[ref]; ok && a.network.Generation <= m.Version.Generation {
		c.forgetInFlight(ref)
	}
	c.notifyConflictsChanged()
}

// remove forgets a network.
func (c *networkIndex) remove(ref network.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored.remove(c.networks[ref].Network)
	delete(c.networks, ref)
	c.notifyConflictsChanged()
}

func (c *networkIndex) notifyConflictsChanged() {
	select {
	case c.conflictsChanged <- struct{}{}:
	default:
	}
}

// inFlightTimeout is how long a network that was let in may take to be stored and to be
// heard of. One that failed later in the chain is in the way for as long.
const inFlightTimeout = 10 * time.Second

// inFlightNetwork is a network that was let in and has not been read yet.
type inFlightNetwork struct {
	network *network.Network
	expires time.Time
}

// admit checks n against all networks, and those that were let in and are not stored
// yet. When it is let in, it is one of these itself: of two that are created at the
// same moment the second is refused. Before is what n is changed from, nil for a new
// one. A dry run is not remembered.
func (c *networkIndex) admit(before, n *network.Network, dryRun bool, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireInFlight(now)
	if err := c.stored.findConflict(before, n); err != nil {
		return err
	}
	if err := network.CheckConflict(withoutCreationTime(n), c.inFlight.contenders(n)); err != nil {
		return fmt.Errorf("%w (that network is being stored at this moment: if it fails, try again in %v)", err, inFlightTimeout)
	}
	if !dryRun {
		c.forgetInFlight(n.Ref)
		came := *n
		came.Created = now // older than who comes next, which has no time
		c.admitted[n.Ref] = inFlightNetwork{&came, now.Add(inFlightTimeout)}
		c.inFlight.add(&came)
	}
	return nil
}

// expireInFlight forgets what never came.
func (c *networkIndex) expireInFlight(now time.Time) {
	for ref, a := range c.admitted {
		if !now.Before(a.expires) {
			c.forgetInFlight(ref)
		}
	}
}

// forgetInFlight no longer awaits a network.
func (c *networkIndex) forgetInFlight(ref network.Ref) {
	if a, ok := c.admitted[ref]; ok {
		c.inFlight.remove(a.network)
		delete(c.admitted, ref)
	}
}

// isTaken reports whether any network is on the VLAN or VXLAN of a place, or has the
// name that a tenant's link would get there: a tenant then gets another one.
func (c *networkIndex) isTaken(p network.TenantSlot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireInFlight(time.Now())
	parent := p.Parent()
	name := createdLinkName(&network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork}, Device: parent.Device, VLAN: parent.VLAN, VXLAN: parent.VXLAN,
	})
	if p.Kind == network.SlotVXLAN {
		p.Device = ""
	}
	return c.stored.isTaken(p, name) || c.inFlight.isTaken(p, name)
}

// get returns a network, nil when it is not there or not valid.
func (c *networkIndex) get(ref network.Ref) (kube.ParsedNetwork, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, ok := c.networks[ref]
	return m, ok
}

// refs are all networks that are known, valid or not, in no order.
func (c *networkIndex) refs() []network.Ref {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.networks))
}

// contenders are the networks that n could be in conflict with.
func (c *networkIndex) contenders(n *network.Network) []*network.Network {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.stored.contenders(n)
}

// conflictCandidates are all that can be in each other's way.
func (c *networkIndex) conflictCandidates() []*network.Network {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*network.Network
	for _, m := range c.networks {
		if canConflict(m.Network) {
			all = append(all, m.Network)
		}
	}
	return all
}
