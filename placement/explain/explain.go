// SPDX-License-Identifier: Apache-2.0

// Package explain computes why a hub places an object as it does: the effective policy, and the fitness of each
// cluster for it, by the functions with which the hub decides. kubectl patchbay explain prints that.
package explain

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/room"
)

// Input is what an explanation is computed from.
type Input struct {
	// Object at the hub, with its kind.
	Object *metav1.PartialObjectMetadata
	// Namespaced is true for an object of a namespaced kind.
	Namespaced bool
	// NamespaceLabels are the labels of its namespace.
	NamespaceLabels map[string]string
	// Placements of the namespace.
	Placements []v1alpha1.Placement
	// ClusterPlacements of the hub.
	ClusterPlacements []v1alpha1.ClusterPlacement
	// Clusters of the hub.
	Clusters []v1alpha1.Cluster
	// Assignment of the object; nil if it has none.
	Assignment *v1alpha1.Assignment
	// Now is the present time.
	Now time.Time
}

// Explanation is why an object is placed as it is.
type Explanation struct {
	// Policy is the source of the effective policy; "" if nothing selects the object.
	Policy string
	// Instead is the policy over which the annotation takes precedence; "" if there is none. The rest of the
	// policy is in force.
	Instead string
	// Mistake keeps the object from having an effective policy; "" if there is none.
	Mistake string
	// Mode of the replicas.
	Mode v1alpha1.ReplicaMode
	// Clusters in the order of their names; empty without an effective policy.
	Clusters []policy.Fitness
	// Room says, by cluster, how many more replicas the last report of a cluster has room for, and until when the
	// cluster gets none because it has refused some. Without an Assignment of an object with Pods it is empty.
	Room map[string]string
}

// Explain returns why the hub places an object as it does.
func Explain(in Input) (*Explanation, error) {
	gk := in.Object.GroupVersionKind().GroupKind()
	if !policy.Placeable(gk, in.Namespaced) || !policy.PlaceableObject(gk, in.Object.Namespace, in.Object.Name) {
		return &Explanation{Mistake: "objects of this kind or name stay at the hub, and are not placed"}, nil
	}
	o := policy.Object{
		Kind: gk, Namespace: in.Object.Namespace, Name: in.Object.Name, Namespaced: in.Namespaced,
		Labels: in.Object.Labels, Annotations: in.Object.Annotations, NamespaceLabels: in.NamespaceLabels,
	}
	p, err := policy.Resolve(o, in.Placements, in.ClusterPlacements)
	if e, ok := errors.AsType[*policy.Error](err); ok {
		return &Explanation{Mistake: e.Reason + ": " + e.Error()}, nil
	}
	if err != nil || p == nil {
		return &Explanation{}, err
	}
	x := &Explanation{Policy: p.Source, Mode: p.Spec.Replicas.Mode}
	if p.Source == v1alpha1.SourceAnnotation {
		o.Annotations = nil
		if other, err := policy.Resolve(o, in.Placements, in.ClusterPlacements); err == nil && other != nil {
			x.Instead = other.Source
		}
	}
	x.Room = roomTexts(in)
	x.Clusters, err = policy.Explain(p, planInput(in, p))
	if e, ok := errors.AsType[*policy.Error](err); ok {
		x.Mistake, err = e.Reason+": "+e.Error(), nil
	}
	return x, err
}

// roomTexts returns the room of each cluster in words.
func roomTexts(in Input) map[string]string {
	texts := map[string]string{}
	if in.Assignment == nil || in.Assignment.Spec.Decision.Requests == nil || in.Object.GroupVersionKind().Group == "batch" {
		return texts
	}
	requests := in.Assignment.Spec.Decision.Requests
	per := room.Requests{MilliCPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value()}
	for i := range in.Clusters {
		if c := &in.Clusters[i]; c.Status.Room != nil {
			texts[c.Name] = fmt.Sprintf("room for %d more by its last report", room.FromAPI(c.Status.Room).Fit(per))
		}
	}
	for _, r := range in.Assignment.Spec.Decision.Refusals {
		if in.Now.Before(r.RetryTime.Time) {
			texts[string(r.Cluster)] = fmt.Sprintf("has refused replicas: gets no more than %d until %s", r.Replicas, r.RetryTime.UTC().Format(time.RFC3339))
		}
	}
	return texts
}

// planInput returns what a plan reads of clusters, and where the object is.
func planInput(in Input, p *policy.EffectivePolicy) policy.PlanInput {
	plan, replaced := policy.PlanInput{Assigned: map[string]int64{}}, map[string]bool{}
	if in.Assignment != nil {
		for _, t := range in.Assignment.Spec.Targets {
			if t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetDraining || t.State == v1alpha1.TargetLost {
				plan.Assigned[string(t.Cluster)] = 0
			}
			replaced[string(t.Cluster)] = t.State == v1alpha1.TargetLost
		}
	}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		plan.Clusters = append(plan.Clusters, policy.Cluster{
			Name: c.Name, Labels: c.Labels, Spec: &c.Spec, Reachability: reachabilityOf(c),
			Deleting:     c.DeletionTimestamp != nil,
			DeclaredLost: meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionDeclaredLost),
		})
	}
	addLosses(plan.Clusters, in, p, replaced)
	return plan
}

// addLosses sets which clusters are lost. The hub counts from when it has seen a cluster fall silent, which no
// condition tells: a new one takes longer.
func addLosses(all []policy.Cluster, in Input, p *policy.EffectivePolicy, replaced map[string]bool) {
	silence := policy.CountSilence(all)
	for i := range all {
		c := &all[i]
		c.DeclaredLost = c.Reachability != policy.Reachable && (c.DeclaredLost || replaced[c.Name])
		reachable := meta.FindStatusCondition(in.Clusters[i].Status.Conditions, v1alpha1.ConditionReachable)
		after := p.Spec.Offline.AssumeLostAfter
		silent := after != nil && c.Reachability == policy.NotReporting && in.Now.Sub(reachable.LastTransitionTime.Time) >= after.Duration
		switch {
		case c.DeclaredLost, silent && !silence.IsTooMany():
			c.Lost = true
		case silent:
			c.LossHeld = silence.String()
		}
	}
}

// reachabilityOf returns whether a cluster reports, by the condition that the hub writes.
func reachabilityOf(c *v1alpha1.Cluster) policy.Reachability {
	condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case condition == nil || condition.Reason == v1alpha1.ReasonNeverJoined:
		return policy.NeverReported
	case condition.Status != metav1.ConditionTrue:
		return policy.NotReporting
	}
	return policy.Reachable
}
