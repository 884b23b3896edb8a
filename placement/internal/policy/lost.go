// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"
)

// Silence is how many clusters of the inventory do not report. The cause of many silent clusters is rather the hub,
// or the network between them and the hub: then none is assumed lost.
type Silence struct {
	// Silent clusters have reported before, and do not report now.
	Silent int
	// All clusters that count: those that are accepted and have reported at least once. A cluster that is declared
	// lost, or whose Cluster is being deleted, does not count.
	All int
}

// CountSilence counts the silent ones of all Clusters of a hub.
func CountSilence(clusters []Cluster) Silence {
	var s Silence
	for i := range clusters {
		c := &clusters[i]
		if !c.Spec.Accepted || c.Deleting || c.DeclaredLost || c.Reachability == NeverReported {
			continue
		}
		if s.All++; c.Reachability == NotReporting {
			s.Silent++
		}
	}
	return s
}

// IsTooMany tells whether more than a third of the clusters is silent.
func (s Silence) IsTooMany() bool { return 3*s.Silent > s.All }

// String returns the numbers in words.
func (s Silence) String() string {
	return fmt.Sprintf("%d of %d clusters do not report, which is more than a third", s.Silent, s.All)
}

// LossClock has the times from which a silent cluster is assumed lost, all by the clock of one hub.
type LossClock struct {
	// SilentSince is when the last heartbeat of the cluster became invalid. Zero: it is not silent.
	SilentSince time.Time
	// ObservedSince is when this hub began to observe heartbeats. What was before is not known.
	ObservedSince time.Time
	// TooManySince is when more than a third of the clusters was last seen to be silent; zero: never.
	TooManySince time.Time
}

// minSilence is how long a cluster must be silent at the least. An outage of the hub's network ends the heartbeats of all
// clusters within the 10 s in which each agent sends one: only after that it shows how many are silent. The API server
// rejects less.
const minSilence = 20 * time.Second

// Remaining returns how long a cluster must still be silent until it is assumed lost, and how long it must be if too
// many are silent, until that alone keeps it from being so. 0 or less: no longer.
func (c LossClock) Remaining(now time.Time, after time.Duration) (untilLost, untilHeld time.Duration) {
	after = max(after, minSilence)
	silent := now.Sub(c.SilentSince)
	observed := min(silent, now.Sub(c.ObservedSince))
	untilHeld = after - observed
	if untilLost = untilHeld; !c.TooManySince.IsZero() {
		untilLost = after - min(observed, now.Sub(c.TooManySince))
	}
	return untilLost, untilHeld
}
