// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"time"

	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// simulatedCluster is a cluster, and what the hub knows of it.
type simulatedCluster struct {
	name string
	work simulatedWork // at the hub

	// In the cluster.
	applied     simulatedWork
	pods        []time.Time // when each Pod has become, or becomes, available
	terminating []time.Time // when each of these Pods is gone
	state       simulatedReport
	unreported  []time.Time // changes that the hub has not acknowledged
	linked      bool
	broken      bool  // its Pods never start
	scaled      int32 // by an autoscaler; 0 without one

	// On the way to the hub.
	reports  []sentReport
	nextBeat time.Time

	// At the hub.
	inInventory bool
	lastBeat    time.Time
	report      simulatedReport
	history     stability.History
	until       time.Time
	proceed     bool
	most        int32 // that the autoscaler or the hub has requested in a move

	declaredLost time.Time // the last heartbeat then
	replaced     bool      // others have replaced it, and it may still run what it had
}

// live returns how many replicas the cluster requests of itself. An autoscaler that the hub knows keeps to what the hub
// requests: exactly where the cluster loses replicas, and at least where it does not.
func (c *simulatedCluster) live(known bool) int32 {
	switch o := c.applied; {
	case !o.exists || o.removing || o.requested == 0:
		return 0
	case c.scaled == 0:
		return o.requested
	case !known:
		return c.scaled
	case o.desired < o.requested:
		return o.requested
	default:
		return max(c.scaled, o.requested)
	}
}

// simulatedWork is what the hub requests of a cluster.
type simulatedWork struct {
	exists, removing bool
	requested        int32
	desired          int32 // of an autoscaled object, after the move
	revision         int

	// What the loss of replicas may cost, since the cluster has read a Work: how many must stay available in all
	// clusters, and how many replicas go that count as unavailable; everything may go if it proceeds.
	need, unavailable int32
	proceed           bool
}

type simulatedReport struct {
	sequence, revision int
	available, total   int32
	scaled             int32 // requested by an autoscaler
	isScaled           bool
	removed, ready     bool
}

type sentReport struct {
	simulatedReport
	taken, arrives time.Time
	linked         bool // the connection lasts, so that the agent gets the answer
}

func (c *simulatedCluster) observe(now time.Time) {
	c.history = c.history.Add(stability.Observation{At: now, Available: c.report.available, Ready: c.report.ready}, 5*time.Minute)
}

func (c *simulatedCluster) available(now time.Time) (n int32) {
	for _, since := range c.pods {
		if !since.After(now) {
			n++
		}
	}
	return n
}
