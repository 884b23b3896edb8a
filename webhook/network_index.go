// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
)

// catalog is what all networks mean. It is a little behind the API server, so it also
// remembers what it has let in (see admit). Another replica does not know of that: of
// two networks that conflict and are created through two replicas at the same moment
// both may be let in, and the younger one is an error on the nodes and says so in a
// condition (see referee). It is safe for concurrent use.
type catalog struct {
	mu     sync.RWMutex
	models map[network.Ref]objects.Model
	// stored are the networks of models; coming those that were let in since.
	stored, coming *near
	awaited        map[network.Ref]awaited
	// complete says that all networks were read once.
	complete bool
	// moved holds a value when there may be other conflicts than before.
	moved chan struct{}
}

// errStarting says that the answer would be made up.
var errStarting = fmt.Errorf("the controller has just started and is reading the networks: %w", reserve.ErrUnavailable)

func newCatalog() *catalog {
	return &catalog{
		models: map[network.Ref]objects.Model{}, stored: newNear(), coming: newNear(),
		awaited: map[network.Ref]awaited{}, moved: make(chan struct{}, 1),
	}
}

// modelOf says what a network object means. The API server asks this package before it
// stores one, so what stands there of an assignment is ours.
func modelOf(obj client.Object) objects.Model {
	net, err := network.From(obj)
	return objects.Model{Version: objects.VersionOf(obj), Network: net, Err: err}
}

// ready returns an error until all networks were read once.
func (c *catalog) ready() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.complete {
		return nil
	}
	return errStarting
}

// completed notes that all networks were read.
func (c *catalog) completed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
	c.move()
}

// knows reports whether the model of this version is there.
func (c *catalog) knows(ref network.Ref, v objects.Version) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, ok := c.models[ref]
	return ok && m.Version == v
}

// settle takes over a new network that was let in, now that it is there: nothing can
// have changed it since, so it need not be read. It reports whether that is so.
func (c *catalog) settle(ref network.Ref, v objects.Version, created time.Time) bool {
	c.mu.Lock()
	a, ok := c.awaited[ref]
	c.mu.Unlock()
	if !ok || v.UID == "" || a.network.UID != string(v.UID) || a.network.Generation != 1 || v.Generation != 1 || v.Deleting {
		return false
	}
	n := *a.network
	n.Created = created
	c.put(ref, objects.Model{Version: v, Network: &n})
	return true
}

// put takes over a model; a later one of the same object stays.
func (c *catalog) put(ref network.Ref, m objects.Model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.models[ref]
	if known && old.Version.UID == m.Version.UID && old.Version.Generation > m.Version.Generation {
		return
	}
	c.stored.remove(old.Network)
	c.models[ref] = m
	c.stored.add(m.Network)
	if a, ok := c.awaited[ref]; ok && a.network.Generation <= m.Version.Generation {
		c.forget(ref)
	}
	c.move()
}

// remove forgets a network.
func (c *catalog) remove(ref network.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored.remove(c.models[ref].Network)
	delete(c.models, ref)
	c.move()
}

func (c *catalog) move() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// storeTime is how long a network that was let in may take to be stored and to be
// heard of. One that failed later in the chain is in the way for as long.
const storeTime = 10 * time.Second

// awaited is a network that was let in and has not been read yet.
type awaited struct {
	network *network.Network
	until   time.Time
}

// admit checks n against all networks, and those that were let in and are not stored
// yet. When it is let in, it is one of these itself: of two that are created at the
// same moment the second is refused. Before is what n is changed from, nil for a new
// one. A dry run is not remembered.
func (c *catalog) admit(before, n *network.Network, dryRun bool, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	if err := c.stored.conflict(before, n); err != nil {
		return err
	}
	if err := network.Conflict(youngest(n), c.coming.rivals(n)); err != nil {
		return fmt.Errorf("%w (that network is being stored at this moment: if it fails, try again in %v)", err, storeTime)
	}
	if !dryRun {
		c.forget(n.Ref)
		came := *n
		came.Created = now // older than who comes next, which has no time
		c.awaited[n.Ref] = awaited{&came, now.Add(storeTime)}
		c.coming.add(&came)
	}
	return nil
}

// expire forgets what never came.
func (c *catalog) expire(now time.Time) {
	for ref, a := range c.awaited {
		if !now.Before(a.until) {
			c.forget(ref)
		}
	}
}

// forget no longer awaits a network.
func (c *catalog) forget(ref network.Ref) {
	if a, ok := c.awaited[ref]; ok {
		c.coming.remove(a.network)
		delete(c.awaited, ref)
	}
}

// taken reports whether any network is on the VLAN or VXLAN of a place, or has the
// name that a tenant's link would get there: a tenant then gets another one.
func (c *catalog) taken(p network.Place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(time.Now())
	parent := p.Parent()
	name := madeLink(&network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork}, Device: parent.Device, VLAN: parent.VLAN, VXLAN: parent.VXLAN,
	})
	if p.Kind == network.PlaceVXLAN {
		p.Device = ""
	}
	return c.stored.taken(p, name) || c.coming.taken(p, name)
}

// get returns a network, nil when it is not there or not valid.
func (c *catalog) get(ref network.Ref) (objects.Model, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, ok := c.models[ref]
	return m, ok
}

// refs are all networks that are known, valid or not, in no order.
func (c *catalog) refs() []network.Ref {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.models))
}

// rivals are the networks that n could be in conflict with.
func (c *catalog) rivals(n *network.Network) []*network.Network {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.stored.rivals(n)
}

// networks are all that can be in each other's way.
func (c *catalog) networks() []*network.Network {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*network.Network
	for _, m := range c.models {
		if inTheWay(m.Network) {
			all = append(all, m.Network)
		}
	}
	return all
}
