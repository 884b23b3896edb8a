// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// spot is one object's place in one cluster.
type spot struct{ cluster, key string }

// held is what the hub and the cluster have said of a spot so far.
type held struct {
	wanted               bool // by the last decision
	mayCreate, mayDelete bool // once, for that decision
	uid, source          types.UID
	orders               map[types.UID]bool // to delete, by the source's UID
}

// ledger is all spots, while the writes are gone through.
type ledger struct {
	spots   map[spot]*held
	decided map[string]string // the last decision by object
	asked   *asked            // by people, at the hub
	broken  []string          // what is against I2, I3 or I6
}

func (l *ledger) breaksf(format string, args ...any) {
	l.broken = append(l.broken, fmt.Sprintf(format, args...))
}

func (l *ledger) at(cluster, key string) *held {
	s := spot{cluster, key}
	if l.spots[s] == nil {
		l.spots[s] = &held{orders: map[types.UID]bool{}}
	}
	return l.spots[s]
}

// brokenOrders is I2, I3 and I6: whatever we delete has an order for its UID, no decision leaves
// a cluster that no person has asked for, and each makes at most one creation, where it newly
// wants the object, and one deletion, where it no longer does. A creation more is for each time
// that somebody else deletes the object, unless it is a Pod.
func (x *watcher) brokenOrders() []string {
	l := &ledger{spots: map[spot]*held{}, decided: map[string]string{}, asked: newAsked()}
	for _, one := range x.all {
		if one.cluster == "" {
			l.asked.note(one)
		}
		switch {
		case one.cluster == "" && one.Resource == "works":
			l.order(one)
		case one.cluster == "" && one.Resource == "assignments" && one.Subresource == "":
			l.decide(one)
		case one.applied() && strings.HasPrefix(one.Verb, "delete"):
			l.removed(one)
		case one.applied() && one.Created:
			l.created(one)
		case one.cluster != "" && strings.HasPrefix(one.Verb, "delete"):
			l.at(one.cluster, one.Key()).mayCreate = one.Resource != "pods" // these are never made again
		}
		if uid := one.Object.GetUID(); one.cluster != "" && uid != "" {
			h := l.at(one.cluster, one.Key())
			h.uid, h.source = uid, types.UID(one.Object.GetAnnotations()[v1alpha1.SourceUIDAnnotation])
		}
	}
	return l.broken
}

// order notes what a Work orders to delete.
func (l *ledger) order(one write) {
	policy, _, _ := unstructured.NestedString(one.Object.Object, "spec", "removal", "policy")
	source, _, _ := unstructured.NestedString(one.Object.Object, "spec", "removal", "sourceUID")
	if policy != string(v1alpha1.OnDeleteDelete) {
		return
	}
	cluster := strings.TrimPrefix(one.Namespace, v1alpha1.ClusterNamespacePrefix)
	for _, key := range manifestKeys(one.Object) {
		l.at(cluster, key).orders[types.UID(source)] = true
	}
}

// decide notes where an Assignment wants its object now.
func (l *ledger) decide(one write) {
	ref, _, _ := unstructured.NestedStringMap(one.Object.Object, "spec", "object")
	if ref["name"] == "" {
		return // deleted
	}
	key := ref["group"] + "/" + ref["resource"] + " " + ref["namespace"] + "/" + ref["name"]
	wanted := map[string]bool{}
	targets, _, _ := unstructured.NestedSlice(one.Object.Object, "spec", "targets")
	for _, value := range targets {
		target, _ := value.(map[string]any)
		cluster, _ := target["cluster"].(string)
		state, _ := target["state"].(string)
		wanted[cluster] = state == string(v1alpha1.TargetActive) || state == string(v1alpha1.TargetPending)
		l.at(cluster, key)
	}
	number, _, _ := unstructured.NestedInt64(one.Object.Object, "spec", "decision", "number")
	decision := fmt.Sprintf("%s/%d", one.Object.GetUID(), number)
	for s, h := range l.spots {
		if s.key != key || h.wanted == wanted[s.cluster] {
			continue
		}
		if l.decided[key] == decision {
			l.breaksf("I3: %s changes whether %s is wanted in %s by no new decision", one, key, s.cluster)
		}
		h.wanted = wanted[s.cluster]
		if h.wanted {
			h.mayCreate = true
			continue
		}
		h.mayDelete = true
		if missing := l.asked.unasked(key, one.Object, !slices.Contains(slices.Collect(maps.Values(wanted)), true)); missing != "" {
			l.breaksf("I6: %s leaves %s with %s, which no person asked for: %s", one, s.cluster, key, missing)
		}
	}
	l.decided[key] = decision
}

func (l *ledger) created(one write) {
	h := l.at(one.cluster, one.Key())
	if !h.mayCreate {
		l.breaksf("I3: %s in %s is one creation more than decisions", one, one.cluster)
	}
	h.mayCreate = false
}

func (l *ledger) removed(one write) {
	h := l.at(one.cluster, one.Key())
	if one.Verb != "delete" || one.Precondition == "" || one.Precondition != h.uid || !h.orders[h.source] {
		l.breaksf("I2: %s in %s without an order for its UID (precondition %q, last seen %q of source %q, orders for %v)",
			one, one.cluster, one.Precondition, h.uid, h.source, h.orders)
	}
	if !h.mayDelete {
		l.breaksf("I3: %s in %s is one deletion more than decisions", one, one.cluster)
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
