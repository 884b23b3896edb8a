// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/status"
)

// reading is an object as it was read, and what is known of its place in time.
type reading struct {
	obj *status.Object
	// newest is the newest version that was known before the read; older says that the
	// object is older than that.
	newest uint64
	older  bool
}

// snapshot is what a plan is made from, besides the local state and the claims: values that
// were read before.
type snapshot struct {
	obj *status.Object
	// danmEps are nil before they were listed.
	danmEps *danmEps
	now     time.Time
	// node and nodeUID are this node, incarnation that of its daemon.
	node, nodeUID string
	incarnation   int64
	// nodeAddresses are the nodes' own, which are never handed out; nodeCount is how many
	// nodes share the pools.
	nodeAddresses []netip.Addr
	nodeCount     int
	// rollback is what the object shows of older state.
	rollback rollback
	// unused says that the network's status is absent, and nothing is asked of it.
	unused bool
	// first says that the local state was compared with the cluster for the first time.
	first bool
	// collect asks to free what nothing covers.
	collect bool
	// fence asks for a real change: a write on the same object may be under way.
	fence bool

	// warm is the warm pool, takes how many claims it has served of late, and withdrawn what
	// has left it for this plan.
	warm      warmContents
	takes     int
	withdrawn []netip.Addr
	// maxWarm limits the warm target, demand is what it follows.
	maxWarm int
	demand  demand
	// closing says that the daemon ends, reclaim that another node needs addresses: nothing
	// is pre-allocated.
	closing, reclaim bool
	// cooldown, idleTimeout and reclaimTimeout are those of Config.
	cooldown, idleTimeout, reclaimTimeout time.Duration
}

// danmEps are the network's DanmEps as one node sees them.
type danmEps struct {
	status.Owners
	// live are the addresses on interfaces of this node.
	live map[netip.Addr]bool
	// publishedBefore are the addresses that were published before the list was asked for:
	// only of these it proves something when their DanmEps are not in it.
	publishedBefore map[netip.Addr]bool
}

// lost reports whether the DanmEp of a published address is not there any more.
func (o *danmEps) lost(a netip.Addr, s addressState) bool {
	return s == published && o.publishedBefore[a] && !o.HasMine(a)
}

// ownEntry reads a node's entry. One that cannot be read has no addresses: what is in use is
// put back from the local state, the rest is collected.
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
