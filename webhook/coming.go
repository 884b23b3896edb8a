// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"time"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

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

// conflict says which other network is in the way. Who is changed counts as the
// youngest: by a change of its own, an older network would break a younger one. But
// two that are in conflict already stay what they are by age.
func (x *near) conflict(before, n *network.Network) error {
	rivals := x.rivals(n)
	err := network.Conflict(youngest(n), rivals)
	if err == nil || before == nil {
		return err
	}
	if network.Conflict(youngest(before), x.rivals(before)) != nil {
		return network.Conflict(n, rivals)
	}
	return err
}

// youngest returns n as if it had not been created yet.
func youngest(n *network.Network) *network.Network {
	young := *n
	young.Created = time.Time{}
	return &young
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
