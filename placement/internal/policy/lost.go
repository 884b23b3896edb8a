// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
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

// Remaining returns how long a cluster must still be silent until it is assumed lost, and how long it must be if too
// many are silent, until that alone keeps it from being so. 0 or less: no longer.
func (c LossClock) Remaining(now time.Time, after time.Duration) (untilLost, untilHeld time.Duration) {
	silent := now.Sub(c.SilentSince)
	observed := min(silent, now.Sub(c.ObservedSince))
	untilHeld = after - observed
	if untilLost = untilHeld; !c.TooManySince.IsZero() {
		untilLost = after - min(observed, now.Sub(c.TooManySince))
	}
	return untilLost, untilHeld
}

// Replaces tells whether other clusters get what a lost one has. An object that must run in one cluster at a time
// stays unless an admin has declared the cluster lost: the cluster may still run it.
func (p *EffectivePolicy) Replaces(c *Cluster) bool {
	return c.DeclaredLost || c.Lost && p.Spec.Replicas.Mode != v1alpha1.ReplicasSingle && p.Spec.Move.Mode != v1alpha1.BreakBeforeMake
}

// lostMessage returns the message and its reason for targets that stay in a silent cluster, although the policy, or an
// admin, takes it for lost; "" for none.
func (p *EffectivePolicy) lostMessage(in PlanInput, selected []candidate, targets map[string]int64) (message, reason string) {
	for _, c := range selected {
		_, chosen := targets[c.Name]
		claim := in.VolumeClaims[c.Name]
		switch {
		case !chosen || !c.Lost && c.LossHeld == "":
		case claim != "" && p.Replaces(c.Cluster):
			return fmt.Sprintf("PersistentVolumeClaim %s has data in %s, which is lost: no other cluster starts the object without its data. "+
				"It stays there. To start it elsewhere with empty volumes, delete it and create it again under another name", claim, c.Name), v1alpha1.ReasonVolumesRefused
		case c.Lost && !p.Replaces(c.Cluster):
			return fmt.Sprintf("%s does not report, and may still run the object, which must not run in two clusters at a time: "+
				"offline.assumeLostAfter does not replace it, and it stays there until %s reports. If %s runs nothing any more, run "+
				"kubectl patchbay cluster declare-lost %s", c.Name, c.Name, c.Name, c.Name), v1alpha1.ReasonWaitingForCluster
		case c.LossHeld != "" && !c.Lost:
			return fmt.Sprintf("%s does not report, and is not assumed lost: %s. Find the cause at the hub or in the network; if %s runs "+
				"nothing any more, run kubectl patchbay cluster declare-lost %s", c.Name, c.LossHeld, c.Name, c.Name), v1alpha1.ReasonWaitingForCluster
		}
	}
	return "", ""
}
