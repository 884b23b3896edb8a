// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// objectLocation is one object's place in one cluster.
type objectLocation struct{ cluster, key string }

// objectState is what the hub and the cluster have said of a spot so far.
type objectState struct {
	wanted               bool // by the last decision
	mayCreate, mayDelete bool // once, for that decision
	uid, source          types.UID
	orders               map[types.UID]bool // to delete, by the source's UID
	keptUnreachable      bool               // what is there: the plan only goes on without the cluster
}

// decisionState is all spots, while the writes are gone through.
type decisionState struct {
	spots      map[objectLocation]*objectState
	last       map[string]v1alpha1.AssignmentSpec // by object
	uids       map[string]types.UID               // of the last Assignment by object
	asked      *userIntent                        // by people, at the hub
	violations []string                           // what is against I2, I3 or I6
}

func (l *decisionState) violationf(format string, args ...any) {
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

func (l *decisionState) state(cluster, key string) *objectState {
	s := objectLocation{cluster, key}
	if l.spots[s] == nil {
		l.spots[s] = &objectState{orders: map[types.UID]bool{}}
	}
	return l.spots[s]
}

// recordOrder notes what a Work orders to delete. A cluster that the plan only goes on without must
// have been left by a person's order by then.
func (l *decisionState) recordOrder(one write) {
	policy, _, _ := unstructured.NestedString(one.Object.Object, "spec", "removal", "policy")
	source, _, _ := unstructured.NestedString(one.Object.Object, "spec", "removal", "sourceUID")
	if policy != string(v1alpha1.OnDeleteDelete) {
		return
	}
	cluster := strings.TrimPrefix(one.Namespace, v1alpha1.ClusterNamespacePrefix)
	for _, key := range manifestKeys(one.Object) {
		h := l.state(cluster, key)
		h.orders[types.UID(source)] = true
		if !h.keptUnreachable {
			continue
		}
		if missing := l.asked.missingIntent(l.newRemoval(one, cluster, key)); missing != "" {
			l.violationf("I6: %s orders %s away from %s, which no person asked for: %s", one, key, cluster, missing)
		}
	}
}

// newRemoval is what a write makes of an object that the last decision does not want in a cluster.
func (l *decisionState) newRemoval(one write, cluster, key string) removal {
	last := l.last[key]
	return removal{
		at: one.Time, key: key, cluster: cluster, object: last.Object, current: last.Decision, previous: last.Decision,
		everywhere: !slices.ContainsFunc(last.Targets, isWanted),
	}
}

// recordDecision notes where an Assignment wants its object now.
func (l *decisionState) recordDecision(one write) {
	var is v1alpha1.Assignment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &is); err != nil {
		l.violationf("I6: %s cannot be read: %v", one, err)
		return
	}
	o := is.Spec.Object
	key := keyOf(o.Group, o.Resource, o.Namespace, o.Name)
	wanted := map[string]bool{}
	for _, t := range is.Spec.Targets {
		wanted[string(t.Cluster)] = isWanted(t)
		l.state(string(t.Cluster), key)
	}
	before := l.last[key]
	same := l.uids[key] == is.UID && before.Decision.Number == is.Spec.Decision.Number
	l.last[key], l.uids[key] = is.Spec, is.UID
	for s, h := range l.spots {
		if s.key != key || h.wanted == wanted[s.cluster] {
			continue
		}
		if same {
			l.violationf("I3: %s changes whether %s is wanted in %s by no new decision", one, key, s.cluster)
		}
		h.wanted, h.keptUnreachable = wanted[s.cluster], false
		if h.wanted {
			h.mayCreate = one.Verb != verbInitial || h.uid == ""
			continue
		}
		h.mayDelete = true
		if slices.ContainsFunc(before.Targets, func(t v1alpha1.Target) bool {
			return string(t.Cluster) == s.cluster && t.State == v1alpha1.TargetPending
		}) {
			continue // it was never sent there
		}
		leaves := l.newRemoval(one, s.cluster, key)
		leaves.previous = before.Decision
		missing := l.asked.missingIntent(leaves)
		if leaves.clusterDeleted = missing != ""; leaves.clusterDeleted {
			missing, h.keptUnreachable = l.asked.missingIntent(leaves), true
		}
		if missing != "" {
			l.violationf("I6: %s leaves %s with %s, which no person asked for: %s", one, s.cluster, key, missing)
		}
	}
}

// isWanted tells whether a target is to have the object.
func isWanted(t v1alpha1.Target) bool {
	return t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetPending
}

func (l *decisionState) checkCreation(one write) {
	if one.Resource == "persistentvolumes" { // of a claim, which is judged
		return
	}
	h := l.state(one.cluster, one.Key())
	if !h.mayCreate {
		l.violationf("I3: %s in %s is one creation more than decisions", one, one.cluster)
	}
	h.mayCreate = false
}

func (l *decisionState) checkDeletion(one write) {
	h := l.state(one.cluster, one.Key())
	if one.Verb != "delete" || one.Precondition == "" || one.Precondition != h.uid || !h.orders[h.source] {
		l.violationf("I2: %s in %s without an order for its UID (precondition %q, last seen %q of source %q, orders for %v)",
			one, one.cluster, one.Precondition, h.uid, h.source, h.orders)
	}
	if !h.mayDelete {
		l.violationf("I3: %s in %s is one deletion more than decisions", one, one.cluster)
	}
	h.mayDelete = false
}

// manifestKeys are the objects that a Work speaks of.
func manifestKeys(work unstructured.Unstructured) []string {
	manifests, _, _ := unstructured.NestedSlice(work.Object, "spec", "manifests")
	var keys []string
	for _, m := range manifests {
		fields, _ := m.(map[string]any)
		resource, _ := fields["resource"].(string)
		content, _ := fields["object"].(map[string]any)
		o := unstructured.Unstructured{Object: content}
		keys = append(keys, o.GroupVersionKind().Group+"/"+resource+" "+o.GetNamespace()+"/"+o.GetName())
	}
	return keys
}
