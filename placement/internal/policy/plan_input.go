// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// PlanInput is what a plan depends on beside the effective policy.
type PlanInput struct {
	// Clusters are all Clusters of the hub.
	Clusters []Cluster
	// Replicas of the object; nil for a kind without replicas.
	Replicas *int64
	// Assigned has the replicas of each cluster that has the object, or is to have it.
	Assigned map[string]int64
	// BeingRemoved are the clusters of Assigned with an order to remove the object. It can be taken back.
	BeingRemoved map[string]bool
	// Leaving are the clusters of Assigned that have begun to lose the object.
	Leaving map[string]bool
	// Returned are the clusters of Leaving that were lost and report again. They take nothing back of what others have
	// got meanwhile.
	Returned map[string]bool
	// Running has the available replicas of each cluster that runs the present object, of a kind without
	// replicas 1.
	Running map[string]int64
	// Started are the clusters in which an object that runs once has started, or may have.
	Started map[string]bool
	// DeletedIn is a cluster of Started in which another client has deleted the object; empty: none.
	DeletedIn string
	// Finished is true for an object that runs once and has finished in all clusters of Started.
	Finished bool
	// PolicyUnchanged is true when Assigned was planned from the same effective policy.
	PolicyUnchanged bool
	// Unconfirmed are the clusters that have not confirmed that they have the present object.
	Unconfirmed map[string]bool
	// VolumeClaims has, by cluster, the name of a claim with data of the object. The object does not leave
	// such a cluster.
	VolumeClaims map[string]string
	// Refused are the clusters that have refused replicas of the object. It stays there without replicas, too.
	Refused map[string]bool
	// Autoscaled are the clusters of Assigned in which an autoscaler has replicas, which Replicas does not count. A
	// division that gives such a cluster a weight leaves it one: else what runs there would have to move.
	Autoscaled map[string]bool
	// Kept are the replicas, in a move of what autoscalers run, of the clusters that have had the whole object since
	// before it. It does not change them. Nil at rest.
	Kept map[string]int64
	// VolumeRefusal returns why the volumes of the object can not move from a cluster to another one; "" when they can.
	VolumeRefusal func(from, to string) string
	// Capacity returns the room of a cluster.
	Capacity CapacityFunc
}

// CapacityFunc returns how many replicas of the object a cluster has room for, including those that it
// has; nil without a limit. why names the limit.
type CapacityFunc func(cluster string) (replicas *int64, why string)

// Cluster is a Cluster as a plan reads it.
type Cluster struct {
	// Name of the Cluster.
	Name string
	// Labels of the Cluster.
	Labels map[string]string
	// Spec of the Cluster; a plan does not change it.
	Spec *v1alpha1.ClusterSpec
	// Lost is true when the cluster is assumed or declared lost.
	Lost bool
	// DeclaredLost is true when an admin has declared the cluster lost, or others have begun to replace it: that holds
	// also for what must run in one cluster at a time.
	DeclaredLost bool
	// LossHeld says why the cluster is not assumed lost, although it has been silent for long enough; else empty.
	LossHeld string
	// Deleting is true when the Cluster object is being deleted. The cluster keeps what it has.
	Deleting bool
	// Reachability tells whether the cluster reports.
	Reachability Reachability
	// DrainLimitReached is true when as many objects leave the cluster as its drain allows at a time: this
	// object stays until another one has left.
	DrainLimitReached bool
}

// unavailableReason returns why the cluster takes nothing new; "" when it can.
func (c *Cluster) unavailableReason() string {
	switch {
	case c.Deleting:
		return c.Name + " is being deleted"
	case !c.Spec.Accepted:
		return c.Name + " is not accepted"
	}
	switch c.Reachability {
	case NotReporting:
		return c.Name + " does not report"
	case NeverReported:
		return c.Name + " has not reported yet"
	case Reachable:
	}
	return ""
}

// hasTaint tells whether the cluster has a taint of this effect that is not tolerated.
func (c *Cluster) hasTaint(effect v1alpha1.TaintEffect, tolerated []v1alpha1.Toleration) bool {
	return slices.ContainsFunc(c.Spec.Taints, func(t v1alpha1.Taint) bool {
		return t.Effect == effect && !slices.ContainsFunc(tolerated, func(o v1alpha1.Toleration) bool {
			return (o.Key == "" || o.Key == t.Key) && (o.Value == "" || o.Value == t.Value) && (o.Effect == "" || o.Effect == t.Effect)
		})
	})
}

// IsDraining tells whether the cluster is to be emptied.
func (c *Cluster) IsDraining() bool {
	return c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove
}

// Reachability tells whether a cluster reports to the hub.
type Reachability int

const (
	// Reachable is a cluster with a fresh heartbeat.
	Reachable Reachability = iota
	// NotReporting is a cluster that no longer reports. It keeps what it has, and gets nothing new.
	NotReporting
	// NeverReported is a cluster whose agent has not reported yet. It gets nothing.
	NeverReported
)
