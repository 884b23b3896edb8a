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
	broken      bool // its Pods never start

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

	declaredLost time.Time // the last heartbeat then
	replaced     bool      // others have replaced it, and it may still run what it had
}

// simulatedWork is what the hub requests of a cluster.
type simulatedWork struct {
	exists, removing bool
	requested        int32
	revision         int

	// What the loss of replicas may cost, since the cluster has read a Work: how many must stay available in all
	// clusters, and how many replicas go that count as unavailable; everything may go if it proceeds.
	need, unavailable int32
	proceed           bool
}

type simulatedReport struct {
	sequence, revision int
	available, total   int32
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
