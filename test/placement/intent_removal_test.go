// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// removal is an Assignment that no longer wants its object in a cluster.
type removal struct {
	at                time.Time
	key               string // of the object
	cluster           string
	object            v1alpha1.ObjectReference
	current, previous v1alpha1.Decision
	everywhere        bool // it leaves all clusters
	clusterDeleted    bool // without a Cluster that is deleted, which is no order to remove anything there
}

// runsOnce tells whether the object, once it has finished, may leave a cluster for none.
func (l removal) runsOnce() bool {
	return l.object.Group == "batch" && l.object.Resource == "jobs" || l.object.Group == "" && l.object.Resource == "pods"
}

// missingIntent says what is missing for a leave to be what a person has asked for; "" when nothing is.
// What was said lately counts, too.
func (a *userIntent) missingIntent(l removal) string {
	objects, policies := a.objects[l.key].recent(l.at), a.policies[l.current.PolicyUID].recent(l.at)
	if slices.ContainsFunc(objects, func(o objectIntent) bool { return o.deleted }) {
		return ""
	}
	if who := a.neededBy(l); who != "" {
		return who + " is there, and takes it along"
	}
	follows := l.current.Source == "dependency" || l.current.Source == ""
	if (l.everywhere || follows) && slices.ContainsFunc(policies, policy.removesUnselected) {
		return ""
	}
	switch {
	case follows:
		return a.missingDependencyIntent(l)
	case l.current.Source == "annotation":
		return firstReason(objects, "the object is not known", func(o objectIntent) string {
			switch {
			case o.clusters == nil:
				return "the object has no annotation"
			case strings.TrimSpace(*o.clusters) == "":
				return ""
			case l.everywhere && !l.runsOnce():
				return fmt.Sprintf("the annotation is %q, and not empty", *o.clusters)
			}
			return a.stillChosen(l, fmt.Sprintf("the annotation %q", *o.clusters), parseAnnotation(*o.clusters), o.replicas, false)
		})
	}
	if len(objects) == 0 {
		objects = []objectIntent{{}}
	}
	edited := len(policies) > 1 || l.previous.Source != l.current.Source || l.previous.PolicyUID != l.current.PolicyUID
	return firstReason(policies, l.current.Source+" is not known", func(p policy) string {
		switch {
		case p.deleted:
			return l.current.Source + " is deleted"
		case l.everywhere && !l.runsOnce():
			return l.current.Source + " exists, and does not say onUnselected: Remove"
		}
		return firstReason(objects, "", func(o objectIntent) string { return a.stillChosen(l, l.current.Source, p.spec, o.replicas, edited) })
	})
}

// firstReason is "" if one of all is well, else what is wrong with the last; otherwise when there is none.
func firstReason[T any](all []T, otherwise string, wrong func(T) string) string {
	for _, one := range all {
		if otherwise = wrong(one); otherwise == "" {
			return ""
		}
	}
	return otherwise
}

// removesUnselected tells whether the policy orders the removal of what it no longer selects.
func (p policy) removesUnselected() bool {
	return !p.deleted && p.spec.OnUnselected == v1alpha1.OnUnselectedRemove
}

// neededBy names what takes the object along and has been in the cluster all the time.
func (a *userIntent) neededBy(l removal) string {
	for _, key := range slices.Sorted(maps.Keys(a.dependents)) {
		lately := a.dependents[key].recent(l.at)
		if !slices.ContainsFunc(lately, func(is dependentState) bool { return !is.dependsOn(l) }) {
			return lately[0].name
		}
	}
	return ""
}

// dependsOn tells whether the leader is in the cluster, and takes the object along.
func (is dependentState) dependsOn(l removal) bool {
	f := v1alpha1.DependencyReference{Group: l.object.Group, Kind: l.object.Kind, Name: l.object.Name}
	return is.namespace == l.object.Namespace && slices.Contains(is.dependencies, f) && slices.Contains(is.clusters, l.cluster)
}

// missingDependencyIntent says what is missing for an object to leave that no policy and no annotation is for.
// Nothing that needs it is there any more.
func (a *userIntent) missingDependencyIntent(l removal) string {
	if l.previous.Source != "dependency" && l.previous.Source != "" {
		return "the object has lost " + l.previous.Source
	}
	for _, past := range a.dependents {
		if slices.ContainsFunc(past.values, func(is dependentState) bool { return is.dependsOn(l) }) {
			return ""
		}
	}
	return "nothing that took it along has left"
}

// stillChosen says why an object must stay in a cluster that people have chosen; "" when they have
// not, when the cluster is to be left, or when there are more clusters than the object has
// replicas. Edited tells that the policy is another one than before.
func (a *userIntent) stillChosen(l removal, who string, spec v1alpha1.PlacementSpec, replicas *int64, edited bool) string {
	if len(spec.Clusters.Names) == 0 && spec.Clusters.Selector == nil {
		return who + " selects no Cluster"
	}
	mode := spec.Replicas.Mode
	if mode == "" {
		mode = defaultMode(l.object)
	}
	divides := mode == v1alpha1.ReplicasDivide && replicas != nil
	some := mode == v1alpha1.ReplicasSingle || spec.Clusters.Count != nil // of those that are chosen
	if some && edited || divides && a.mayGetNone(l, spec, *replicas) {
		return ""
	}
	states := a.clusters[l.cluster].recent(l.at)
	if len(states) == 0 {
		states = []inventoryEntry{{}} // only its name is known
	}
	return firstReason(states, "", func(c inventoryEntry) string {
		switch {
		case !choiceMatches(spec.Clusters, l.cluster, c.Labels), c.drains(spec.Clusters.Tolerations),
			divides && c.Spec.Limits != nil, spec.Offline.AssumeLostAfter != nil && !c.isReachable(),
			l.clusterDeleted && c.deleted:
			return ""
		}
		return who + " chooses the cluster, and nobody has asked to empty it"
	})
}

// drains tells whether the Cluster's drain or a taint orders what is there to leave.
func (c inventoryEntry) drains(tolerated []v1alpha1.Toleration) bool {
	return c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove ||
		slices.ContainsFunc(c.Spec.Taints, func(t v1alpha1.Taint) bool {
			return t.Effect == v1alpha1.TaintNoExecute && !slices.ContainsFunc(tolerated, func(o v1alpha1.Toleration) bool {
				return (o.Key == "" || o.Key == t.Key) && (o.Value == "" || o.Value == t.Value) && (o.Effect == "" || o.Effect == t.Effect)
			})
		})
}

// isReachable tells whether the hub says that the Cluster is reachable.
func (c inventoryEntry) isReachable() bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable)
}

// mayGetNone tells whether the division of replicas may give a cluster none.
func (a *userIntent) mayGetNone(l removal, spec v1alpha1.PlacementSpec, replicas int64) bool {
	weight := func(name string) int64 {
		if len(spec.Replicas.Weights) == 0 {
			return 1
		}
		return int64(spec.Replicas.Weights[name])
	}
	names := map[string]bool{l.cluster: true}
	for _, name := range spec.Clusters.Names {
		names[string(name)] = true
	}
	for name, c := range a.clusters {
		if is := c.latest(); !is.deleted && choiceMatches(spec.Clusters, name, is.Labels) {
			names[name] = true
		}
	}
	var total int64
	for name := range names {
		total += weight(name)
	}
	most, bounded := spec.Replicas.Max[l.cluster]
	return replicas*weight(l.cluster) < total || bounded && most == 0 || len(spec.Replicas.Min) > 0
}

// defaultMode is how the replicas of a kind are spread that no policy speaks of.
func defaultMode(o v1alpha1.ObjectReference) v1alpha1.ReplicaMode {
	switch o.Resource {
	case "deployments", "replicasets", "replicationcontrollers":
		return v1alpha1.ReplicasDivide
	case "statefulsets", "jobs", "cronjobs", "pods", "persistentvolumeclaims":
		return v1alpha1.ReplicasSingle
	}
	return v1alpha1.ReplicasDuplicate
}
