// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// watcher holds us to I1 to I5 over one test, from the audit logs of all API servers.
type watcher struct {
	logs map[string]*bed.Log // by cluster; "" is the hub
	all  []write             // so far, by time
	// namespaces are the test's own; what earlier tests leave is still being removed.
	namespaces []string
	// repairs are how many creations more than decisions the test has asked for, by
	// deleting in clusters.
	repairs int
	// loss allows what I1 forbids: the test has asked for it.
	loss bool
	// force allows what I4 forbids of fields: the policy says so.
	force bool
}

// write is one write and where it was.
type write struct {
	cluster string // "" is the hub
	bed.Write
}

// ours tells whether one of our programs wrote.
func (w write) ours() bool {
	return w.User == bed.HubUser || w.User == bed.AgentUser || strings.HasPrefix(w.User, v1alpha1.ClusterUserPrefix)
}

// applied tells whether it is an agent's write of somebody's object in a cluster.
func (w write) applied() bool {
	return w.cluster != "" && w.User == bed.AgentUser && w.Group != v1alpha1.GroupName && w.Resource != "secrets" && w.Resource != "namespaces"
}

// watch begins to watch; the end of the test checks.
func watch(t *testing.T, w *world, namespaces ...string) *watcher {
	t.Helper()
	x := &watcher{logs: map[string]*bed.Log{}, namespaces: namespaces}
	var err error
	if x.logs[""], err = w.Hub.AuditLog(); err != nil {
		t.Fatal(err)
	}
	for name, c := range w.Clusters {
		if x.logs[name], err = c.AuditLog(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			x.settle(t)
			x.check(t)
		}
		for _, ns := range namespaces { // nobody waits for it: the next test has another
			if err := w.Hub.Client.Delete(context.Background(), object("v1", "Namespace", "", ns)); err != nil {
				t.Error(err)
			}
		}
	})
	return x
}

// read takes in what was written since, and returns it.
func (x *watcher) read(t *testing.T) []write {
	t.Helper()
	var fresh []write
	for cluster, log := range x.logs {
		writes, err := log.Writes()
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range writes {
			switch w := (write{cluster, one}); {
			case x.concerns(one):
				fresh = append(fresh, w)
			case one.Resource == "clusters": // judged, but they tell of other tests, too
				x.all = append(x.all, w)
			}
		}
	}
	x.all = append(x.all, fresh...)
	slices.SortStableFunc(x.all, func(a, b write) int { return cmp.Compare(a.Time.UnixNano(), b.Time.UnixNano()) })
	return fresh
}

// concerns tells whether a write is of something in the test's namespaces, or names it.
func (x *watcher) concerns(w bed.Write) bool {
	source, _, _ := unstructured.NestedString(w.Object.Object, "spec", "source", "namespace")
	return slices.ContainsFunc(x.namespaces, func(ns string) bool {
		return w.Namespace == ns || source == ns || strings.Contains(string(w.Request), ns)
	})
}

// settle waits until nobody of us has written for a while (I5).
func (x *watcher) settle(t *testing.T) {
	t.Helper()
	x.read(t)
	quiet := time.Now()
	var last write
	for end := time.Now().Add(patience + *settled); time.Since(quiet) < *settled; <-time.After(poll) {
		for _, one := range x.read(t) {
			if one.ours() {
				quiet, last = time.Now(), one
			}
		}
		if time.Now().After(end) {
			t.Fatalf("I5: never quiet for %s; last in %q: %s", *settled, last.cluster, last)
		}
	}
}

// check judges all writes.
func (x *watcher) check(t *testing.T) {
	t.Helper()
	x.checkDeletes(t)
	x.checkCounts(t)
	x.checkAvailable(t)
	x.checkFields(t)
	x.checkInventory(t)
}

// checkInventory: our programs write a Cluster's status and nothing else of it.
func (x *watcher) checkInventory(t *testing.T) {
	t.Helper()
	for _, one := range x.all {
		if one.cluster == "" && one.ours() && one.Resource == "clusters" && one.Subresource != "status" {
			t.Errorf("inventory: %s", one)
		}
	}
}

// checkDeletes is I2: every delete has an order for its UID.
func (x *watcher) checkDeletes(t *testing.T) {
	t.Helper()
	type ordered struct{ cluster, object string }
	orders := map[ordered]bool{}
	made := map[types.UID]bool{} // reported by the cluster's agent as its own
	for _, one := range x.all {
		switch {
		case one.cluster == "" && one.Resource == "works":
			cluster := strings.TrimPrefix(one.Namespace, v1alpha1.ClusterNamespacePrefix)
			if policy, _, _ := unstructured.NestedString(one.Object.Object, "spec", "removal", "policy"); policy == "Delete" {
				for _, key := range manifestKeys(one.Object) {
					orders[ordered{cluster, key}] = true
				}
			}
			for _, uid := range manifestUIDs(one.Object) {
				made[uid] = true
			}
		case one.applied() && strings.HasPrefix(one.Verb, "delete"):
			if one.Precondition == "" || !made[one.Precondition] || !orders[ordered{one.cluster, one.Key()}] {
				t.Errorf("I2: %s in %s without an order for its UID (precondition %q, made by us %t, ordered %t)",
					one, one.cluster, one.Precondition, made[one.Precondition], orders[ordered{one.cluster, one.Key()}])
			}
		}
	}
}

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

func manifestUIDs(work unstructured.Unstructured) []types.UID {
	manifests, _, _ := unstructured.NestedSlice(work.Object, "status", "manifests")
	var uids []types.UID
	for _, m := range manifests {
		fields, _ := m.(map[string]any)
		if uid, _ := fields["uid"].(string); uid != "" {
			uids = append(uids, types.UID(uid))
		}
	}
	return uids
}

// checkCounts is I3: at most one create and one delete per object, cluster and decision.
func (x *watcher) checkCounts(t *testing.T) {
	t.Helper()
	decisions := map[string]map[int64]bool{} // by object
	creates, deletes := map[string]int{}, map[string]int{}
	for _, one := range x.all {
		switch {
		case one.cluster == "" && one.Resource == "assignments":
			key := assignedKey(one.Object)
			number, _, _ := unstructured.NestedInt64(one.Object.Object, "spec", "decision", "number")
			if decisions[key] == nil {
				decisions[key] = map[int64]bool{}
			}
			decisions[key][number] = true
		case one.applied() && one.Created:
			creates[one.cluster+" "+one.Key()]++
		case one.applied() && one.Verb == "delete":
			deletes[one.cluster+" "+one.Key()]++
		}
	}
	for what, counts := range map[string]map[string]int{"created": creates, "deleted": deletes} {
		for at, n := range counts {
			_, key, _ := strings.Cut(at, " ")
			if most := len(decisions[key]) + x.repairs; n > most {
				t.Errorf("I3: %s was %s %d times for %d decisions", at, what, n, most)
			}
		}
	}
}

func assignedKey(assignment unstructured.Unstructured) string {
	ref, _, _ := unstructured.NestedStringMap(assignment.Object, "spec", "object")
	return ref["group"] + "/" + ref["resource"] + " " + ref["namespace"] + "/" + ref["name"]
}
