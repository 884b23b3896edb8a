// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// watcher holds us to I1 to I9 over one test, from the audit logs of all API servers, and from what
// they have in the end.
type watcher struct {
	logs map[string]*bed.Log // by cluster; "" is the hub
	all  []write             // so far
	// namespaces are the test's own; what earlier tests leave is still being removed.
	namespaces []string
	// loss allows what I1 forbids: the test has asked for it.
	loss bool
	// force allows what I4 forbids of fields: the policy says so.
	force bool
	// behind allows conditions to be untrue for long while the test runs (I9): it keeps our programs
	// from what they do all the time.
	behind atomic.Bool

	// logged are patterns of the logs of our programs that are not in the bed's folder.
	logged []string

	untrue untruths // so far
}

// write is one write and where it was.
type write struct {
	cluster string // "" is the hub
	bed.Write
}

// ours tells whether one of our programs wrote.
func (w write) ours() bool {
	return w.User == bed.HubUser || w.User == bed.AgentUser || strings.HasPrefix(w.User, v1alpha1.ClusterUserPrefix) ||
		strings.HasPrefix(w.User, "system:serviceaccount:"+v1alpha1.ClusterNamespacePrefix)
}

// applied tells whether it is an agent's write of somebody's object in a cluster.
func (w write) applied() bool {
	own := w.Group == v1alpha1.GroupName || w.Resource == "namespaces" || w.Resource == "rolebindings" ||
		w.Resource == "secrets" && (w.Namespace == v1alpha1.CopyNamespace || w.Namespace == v1alpha1.SystemNamespace)
	return w.cluster != "" && w.User == bed.AgentUser && !own
}

// dry tells whether nothing was written: it was only tried.
func (w write) dry() bool {
	return strings.Contains(w.URI, "dryRun=All") || bytes.Contains(w.Request, []byte(`"dryRun":["All"]`))
}

// watch begins to watch; the end of the test checks.
func watch(t *testing.T, w *world, namespaces ...string) *watcher {
	t.Helper()
	x := newWatcher(t, w, namespaces...)
	stop := x.lookOut(w)
	t.Cleanup(func() {
		if !t.Failed() {
			x.settle(t)
		}
		stop()
		if !t.Failed() {
			x.judge(t, w)
		}
		for _, ns := range namespaces { // nobody waits for it: the next test has another
			if err := w.Hub.Client.Delete(context.Background(), object("v1", "Namespace", "", ns)); err != nil {
				t.Error(err)
			}
		}
	})
	return x
}

// newWatcher is a watcher that nobody has judge yet.
func newWatcher(t *testing.T, w *world, namespaces ...string) *watcher {
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
	x.all = x.live(t, w)
	return x
}

// read takes in what was written since, and returns it.
func (x *watcher) read(t *testing.T) []write {
	t.Helper()
	var fresh []write
	for cluster, log := range x.logs {
		writes, err := log.Writes(append([]string{`"resource":"clusters"`}, x.namespaces...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range writes {
			switch w := (write{cluster, one}); {
			case w.dry():
			case x.concerns(one):
				fresh = append(fresh, w)
			case cluster == "" && one.Resource == "clusters": // judged, but they tell of other tests, too
				x.all = append(x.all, w)
			}
		}
	}
	x.all = append(x.all, fresh...)
	return fresh
}

// concerns tells whether a write is of something in the test's namespaces, or names it.
func (x *watcher) concerns(w bed.Write) bool {
	source, _, _ := unstructured.NestedString(w.Object.Object, "spec", "source", "namespace")
	return slices.ContainsFunc(x.namespaces, func(ns string) bool {
		return w.Namespace == ns || w.Namespace == "" && w.Name == ns || source == ns || strings.Contains(string(w.Request), ns)
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

// inOrder puts causes before effects. Who acts on a write asks after the write was asked
// for, but often before it is answered: the time of the request decides. Of one object
// the API server's own order does: writes with one resourceVersion are one that changed
// something and some of ours that did not, as an agent that starts applies again.
func inOrder(all []write) {
	slices.SortStableFunc(all, func(a, b write) int {
		return cmp.Or(cmp.Compare(a.version(), b.version()), compareBool(a.ours() && !a.Created, b.ours() && !b.Created))
	})
	last := map[string]time.Time{}
	for i := range all {
		one := &all[i]
		if one.version() == 0 {
			continue // a deletion's answer has none
		}
		at := one.cluster + " " + one.Key()
		if one.Time.Before(last[at]) {
			one.Time = last[at]
		}
		last[at] = one.Time
	}
	slices.SortStableFunc(all, func(a, b write) int { return a.Time.Compare(b.Time) })
}

// compareBool puts false first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// version is the resourceVersion after the write; 0 when the answer has none.
func (w write) version() uint64 {
	n, err := strconv.ParseUint(w.Object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// judge reports all that is broken at the end of a test, whose context has ended.
func (x *watcher) judge(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x.read(t)
	leaks, _, err := x.leaks(ctx, w)
	untrue, reasonsErr := x.brokenReasons(ctx, w)
	if err := errors.Join(err, reasonsErr); err != nil {
		t.Error(err)
	}
	for _, what := range slices.Concat(x.broken(), leaks, untrue) {
		t.Error(what)
	}
}

// broken judges all writes, and says what is against I1 to I4 and I6 to I8.
func (x *watcher) broken() []string {
	inOrder(x.all)
	return slices.Concat(x.brokenOrders(), x.brokenAvailable(), x.brokenFields(), x.brokenInventory(), x.brokenBounds(), x.brokenSecrets())
}

// brokenBounds is I7: no object of our kinds is too large.
func (x *watcher) brokenBounds() (broken []string) {
	for _, one := range x.all {
		if one.Group != v1alpha1.GroupName {
			continue
		}
		if raw, err := one.Object.MarshalJSON(); err != nil || len(raw) > v1alpha1.MaxObjectBytes {
			broken = append(broken, fmt.Sprintf("I7: %s has %d bytes (%v)", one, len(raw), err))
		}
	}
	return broken
}

// brokenInventory: our programs write a Cluster's status and nothing else of it.
func (x *watcher) brokenInventory() (broken []string) {
	for _, one := range x.all {
		if one.cluster == "" && one.ours() && one.Resource == "clusters" && one.Subresource != "status" {
			broken = append(broken, fmt.Sprintf("inventory: %s", one))
		}
	}
	return broken
}
