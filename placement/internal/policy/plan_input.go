// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// PlanInput is what a plan depends on beside the wish.
type PlanInput struct {
	// Clusters are all there are.
	Clusters []Cluster
	// Replicas of the object; nil for a kind without.
	Replicas *int64
	// Assigned says which clusters have the object or are to have it, and how many replicas.
	Assigned map[string]int64
	// BeingRemoved says which clusters of Has are to lose the object, by an order that can be taken back.
	BeingRemoved map[string]bool
	// PolicyUnchanged says that the wish is the one that Has was planned from.
	PolicyUnchanged bool
	// Unconfirmed says which clusters have not confirmed that they have the object as it is.
	Unconfirmed map[string]bool
	// VolumeClaims names, by cluster, a claim with data of the object there: it does not leave that
	// cluster.
	VolumeClaims map[string]string
	// Capacity of each cluster.
	Capacity CapacityFunc
}

// CapacityFunc says how many replicas of the object one cluster has room for, those that it
// has included; none is no limit. Why names the limit.
type CapacityFunc func(cluster string) (replicas *int64, why string)

// Cluster is what a decision knows of a cluster.
type Cluster struct {
	// Name and Labels of the Cluster.
	Name string
	// Labels of it.
	Labels map[string]string
	// Spec of it; not changed.
	Spec *v1alpha1.ClusterSpec
	// Lost says that the policy takes what the cluster has for lost.
	Lost bool
	// Deleting says that the Cluster object is being deleted. The cluster keeps what it has.
	Deleting bool
	// Reachability says whether the cluster reports.
	Reachability Reachability
	// DrainLimitReached says that as many objects leave the cluster as its drain allows at a time: this one
	// stays until another has left.
	DrainLimitReached bool
}

// unavailableReason says why the cluster cannot take anything; "" when it can.
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

// IsDraining says that the cluster is to be emptied.
func (c *Cluster) IsDraining() bool {
	return c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove
}

// Reachability says whether a cluster reports to the hub.
type Reachability int

const (
	// Reachable says that its heartbeat is fresh.
	Reachable Reachability = iota
	// NotReporting says that it has reported, and does not any more. It keeps what it has, and gets
	// nothing new.
	NotReporting
	// NeverReported says that no agent has reported for this Cluster yet. It gets nothing.
	NeverReported
)
