// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

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
	// Reach says whether the cluster reports.
	Reach Reach
	// Full says that as many objects leave the cluster as its drain allows at a time: this one
	// stays until another has left.
	Full bool
}

// Reach says whether a cluster reports to the hub.
type Reach int

const (
	// Reachable says that its heartbeat is fresh.
	Reachable Reach = iota
	// Silent says that it has reported, and does not any more. It keeps what it has, and gets
	// nothing new.
	Silent
	// NeverSeen says that no agent has reported for this Cluster yet. It gets nothing.
	NeverSeen
)

// waiting says why the cluster cannot take anything; "" when it can.
func (c *Cluster) waiting() string {
	switch {
	case c.Deleting:
		return c.Name + " is being deleted"
	case !c.Spec.Accepted:
		return c.Name + " is not accepted"
	}
	switch c.Reach {
	case Silent:
		return c.Name + " does not report"
	case NeverSeen:
		return c.Name + " has not reported yet"
	case Reachable:
	}
	return ""
}

// fitness is what a cluster may be used for.
type fitness int

const (
	// unfit: not at all.
	unfit fitness = iota
	// leaving: what is there stays until there is room elsewhere.
	leaving
	// staying: what is there stays, nothing new comes.
	staying
	// fit for anything.
	fit
)

// candidate is a cluster that a wish allows.
type candidate struct {
	*Cluster
	fitness
	rank int // the place in the wish's order
}

// candidates returns the clusters that the wish names or selects, in its order. has says which
// have the object.
func (w *Wish) candidates(all []Cluster, has map[string]int64) ([]candidate, error) {
	choice := w.Spec.Clusters
	if len(choice.Names) == 0 && choice.Selector == nil {
		return nil, nil
	}
	var found []candidate
	for i := range all {
		c := &all[i]
		rank := 0
		if len(choice.Names) > 0 {
			if rank = slices.Index(choice.Names, v1alpha1.ClusterName(c.Name)); rank < 0 {
				continue
			}
		}
		ok, err := selects(choice.Selector, c.Labels)
		if err != nil {
			return nil, wrong(w.Source, "spec.clusters.selector", err)
		}
		_, there := has[c.Name]
		if f := w.fitness(c, there); ok && f != unfit {
			found = append(found, candidate{c, f, rank})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return strings.Compare(a.Name, b.Name)
	})
	return found, w.known(all)
}

// known checks that clusters that are named exist.
func (w *Wish) known(all []Cluster) error {
	for i, name := range w.Spec.Clusters.Names {
		if slices.ContainsFunc(all, func(c Cluster) bool { return c.Name == string(name) }) {
			continue
		}
		e := &Error{
			Reason: v1alpha1.ReasonUnknownCluster, Object: w.Source, Field: fmt.Sprintf("spec.clusters.names[%d]", i),
			Message: fmt.Sprintf("there is no Cluster %q", name),
		}
		if w.Source == "annotation" {
			e.Object, e.Field = "", "metadata.annotations["+v1alpha1.ClustersAnnotation+"]"
		}
		return e
	}
	return nil
}

// fitness says what a cluster may be used for by this wish. Taking a cluster out of the inventory,
// or its acceptance, is no order to remove what it has.
func (w *Wish) fitness(c *Cluster, has bool) fitness {
	switch out := c.Deleting || !c.Spec.Accepted; {
	case out && !has && !w.Named:
		return unfit
	case c.Lost, c.Drains() && !c.Full, w.repelled(c, v1alpha1.TaintNoExecute):
		return leaving
	case out, c.Drains(), c.Spec.Unschedulable, w.repelled(c, v1alpha1.TaintNoSchedule), c.Reach != Reachable:
		return staying
	}
	return fit
}

// Drains says that the cluster is to be emptied.
func (c *Cluster) Drains() bool {
	return c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove
}

// repelled says that the cluster has a taint of this effect that the wish does not
// tolerate.
func (w *Wish) repelled(c *Cluster, effect v1alpha1.TaintEffect) bool {
	for _, t := range c.Spec.Taints {
		if t.Effect == effect && !slices.ContainsFunc(w.Spec.Clusters.Tolerations, func(o v1alpha1.Toleration) bool {
			return (o.Key == "" || o.Key == t.Key) && (o.Value == "" || o.Value == t.Value) &&
				(o.Effect == "" || o.Effect == t.Effect)
		}) {
			return true
		}
	}
	return false
}
