// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/status"
)

// reading is an object as it was read, and whether it is older than a known version.
type reading struct {
	obj *status.Object
	// newest is the newest version that was known before the read; older means that the
	// object is older than that.
	newest uint64
	older  bool
}

// snapshot is the input of a plan besides the local state and the claims. All values were read
// before.
type snapshot struct {
	obj *status.Object
	// danmEps is nil if the DanmEps were not listed.
	danmEps *danmEps
	now     time.Time
	// node, nodeUID and incarnation are those of Config.
	node, nodeUID string
	incarnation   int64
	// nodeAddresses are the nodes' own addresses, which are never allocated; nodeCount is how
	// many nodes share the pools.
	nodeAddresses []netip.Addr
	nodeCount     int
	// rollback is the result of the rollback detection.
	rollback rollback
	// unused means that the network has no status, and no request needs one.
	unused bool
	// first means that the local state was compared with the cluster for the first time.
	first bool
	// collect requests that uncovered bits are freed.
	collect bool
	// fence requests a real change: a write on the same object may be in flight.
	fence bool

	// warm is the warm pool, takes how many claims it has served since demand was measured,
	// and withdrawn the addresses that were withdrawn from it for this plan.
	warm      warmContents
	takes     int
	withdrawn []netip.Addr
	// demand determines the warm target, and maxWarm limits it.
	maxWarm int
	demand  demand
	// closing means that the daemon shuts down, reclaim that another node needs addresses:
	// then no address is pre-allocated.
	closing, reclaim bool
	// cooldown, idleTimeout and reclaimTimeout are those of Config.
	cooldown, idleTimeout, reclaimTimeout time.Duration
}

// danmEps are the addresses of the network's DanmEps, from the point of view of this node.
type danmEps struct {
	status.Owners
	// live are the addresses on interfaces of this node.
	live map[netip.Addr]bool
	// publishedBefore are the addresses that were published before the list request: only
	// their DanmEps are lost if they are not in the list.
	publishedBefore map[netip.Addr]bool
}

// lost reports whether the DanmEp of a published address no longer exists.
func (o *danmEps) lost(a netip.Addr, s addressState) bool {
	return s == published && o.publishedBefore[a] && !o.HasMine(a)
}

// ownEntry parses a node's entry. An unreadable one counts as empty: addresses in use are added
// again from the local state, and garbage collection frees the others.
func ownEntry(o *status.Object, node string) (e status.Entry, unreadable bool) {
	if o.IPAM == nil {
		return e, false
	}
	h, ok := o.IPAM.Held[node]
	if !ok {
		return e, false
	}
	e, err := status.ParseEntry(h)
	return e, err != nil
}
