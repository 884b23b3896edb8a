// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// invariantChecker holds us to I1 to I9 over one test, from the audit logs of all API servers, and from what
// they have in the end.
type invariantChecker struct {
	logs   map[string]*bed.AuditReader // by cluster; "" is the hub
	writes []write                     // so far
	// namespaces are the test's own; what earlier tests leave is still being removed.
	namespaces []string
	// allowUnavailable allows what I1 forbids: the test has asked for it.
	allowUnavailable bool
	// allowForce allows what I4 forbids of fields: the policy says so.
	allowForce bool
	// allowStaleConditions allows conditions to be untrue for long while the test runs (I9): it keeps our programs
	// from what they do all the time.
	allowStaleConditions atomic.Bool

	// logPatterns are patterns of the logs of our programs that are not in the bed's folder.
	logPatterns []string

	staleConditions falseConditions // so far
}

// write is one write and where it was.
type write struct {
	cluster string // "" is the hub
	bed.Write
}

// isOurs tells whether one of our programs wrote.
func (w write) isOurs() bool {
	return w.User == bed.HubUser || w.User == bed.AgentUser || strings.HasPrefix(w.User, v1alpha1.ClusterUserPrefix) ||
		strings.HasPrefix(w.User, "system:serviceaccount:"+v1alpha1.ClusterNamespacePrefix)
}

// isApplied tells whether it is an agent's write of somebody's object in a cluster.
func (w write) isApplied() bool {
	own := w.Group == v1alpha1.GroupName || w.Resource == "namespaces" || w.Resource == "rolebindings" || w.Resource == "endpointslices" ||
		w.Resource == "secrets" && (w.Namespace == v1alpha1.SecretCopyNamespace || w.Namespace == v1alpha1.SystemNamespace)
	return w.cluster != "" && w.User == bed.AgentUser && !own
}

// isDryRun tells whether nothing was written: it was only tried.
func (w write) isDryRun() bool {
	return strings.Contains(w.URI, "dryRun=All") || bytes.Contains(w.Request, []byte(`"dryRun":["All"]`))
}

// version is the resourceVersion after the write; 0 when the answer has none.
func (w write) version() uint64 {
	n, err := strconv.ParseUint(w.Object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// checkInvariants begins to watch; the end of the test checks.
func checkInvariants(t *testing.T, w *world, namespaces ...string) *invariantChecker {
	t.Helper()
	x := newInvariantChecker(t, w, namespaces...)
	stop := x.startConditionChecks(w)
	t.Cleanup(func() {
		if !t.Failed() {
			x.settle(t)
		}
		stop()
		if !t.Failed() {
			x.report(t, w)
		}
		for _, ns := range namespaces { // nobody waits for it: the next test has another
			if err := w.Hub.Client.Delete(context.Background(), object("v1", "Namespace", "", ns)); err != nil {
				t.Error(err)
			}
		}
	})
	return x
}

// newInvariantChecker is a watcher that nobody has judge yet.
func newInvariantChecker(t *testing.T, w *world, namespaces ...string) *invariantChecker {
	t.Helper()
	x := &invariantChecker{logs: map[string]*bed.AuditReader{}, namespaces: namespaces}
	var err error
	if x.logs[""], err = w.Hub.AuditLog(); err != nil {
		t.Fatal(err)
	}
	for name, c := range w.Clusters {
		if x.logs[name], err = c.AuditLog(); err != nil {
			t.Fatal(err)
		}
	}
	x.writes = x.liveObjects(t, w)
	return x
}

// read takes in what was written since, and returns it.
func (x *invariantChecker) read(t *testing.T) []write {
	t.Helper()
	var fresh []write
	for cluster, log := range x.logs {
		writes, err := log.Writes(append([]string{`"resource":"clusters"`}, x.namespaces...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range writes {
			switch w := (write{cluster, one}); {
			case w.isDryRun():
			case x.concerns(one):
				fresh = append(fresh, w)
			case cluster == "" && one.Resource == "clusters": // judged, but they tell of other tests, too
				x.writes = append(x.writes, w)
			}
		}
	}
	x.writes = append(x.writes, fresh...)
	return fresh
}

// concerns tells whether a write is of something of the test's namespaces, or names it.
func (x *invariantChecker) concerns(w bed.Write) bool {
	source, _, _ := unstructured.NestedString(w.Object.Object, "spec", "source", "namespace")
	return slices.ContainsFunc(x.namespaces, func(ns string) bool {
		return belongsTo(ns, w.Namespace, w.Name) || source == ns || strings.Contains(string(w.Request), ns)
	})
}

// belongsTo tells whether an object belongs to the test with a namespace: it is in there, or it has no namespace, and its
// name is that one, or begins with it and a dash.
func belongsTo(ns, namespace, name string) bool {
	return namespace == ns || namespace == "" && (name == ns || strings.HasPrefix(name, ns+"-"))
}

// settle waits until nobody of us has written for a while (I5).
func (x *invariantChecker) settle(t *testing.T) {
	t.Helper()
	x.read(t)
	quiet := time.Now()
	var last write
	for end := time.Now().Add(waitTimeout + *quietPeriod); time.Since(quiet) < *quietPeriod; <-time.After(pollInterval) {
		for _, one := range x.read(t) {
			if one.isOurs() {
				quiet, last = time.Now(), one
			}
		}
		if time.Now().After(end) {
			t.Fatalf("I5: never quiet for %s; last in %q: %s", *quietPeriod, last.cluster, last)
		}
	}
}

// inOrder puts causes before effects. Who acts on a write asks after the write was asked
// for, but often before it is answered: the time of the request decides. Of one object
// the API server's own order does: writes with one resourceVersion are one that changed
// something and some of ours that did not, as an agent that starts applies again.
func inOrder(all []write) {
	slices.SortStableFunc(all, func(a, b write) int {
		return cmp.Or(cmp.Compare(a.version(), b.version()), compareBool(a.isOurs() && !a.Created, b.isOurs() && !b.Created))
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

// verbInitial is the verb of what is not a write, but was there when the watcher began.
const verbInitial = "seed"

// liveObjects is what the hub and the clusters have now of what the test is about, as if it was just
// written by nobody: the watcher judges what comes after.
func (x *invariantChecker) liveObjects(t *testing.T, w *world) []write {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	f, err := x.readSnapshot(ctx, w)
	if err != nil {
		t.Fatal(err)
	}
	var all []write
	add := func(cluster, group, resource string, o unstructured.Unstructured) {
		all = append(all, write{cluster, bed.Write{
			Time: f.now, Verb: verbInitial, Group: group, Resource: resource, Namespace: o.GetNamespace(), Name: o.GetName(), Object: o,
		}})
	}
	ours := func(cluster, resource string, o client.Object) {
		fields, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		err = errors.Join(err, convertErr)
		add(cluster, v1alpha1.GroupName, resource, unstructured.Unstructured{Object: fields})
	}
	for i := range f.clusters {
		ours("", "clusters", &f.clusters[i])
	}
	for i := range f.placements {
		ours("", "placements", &f.placements[i])
	}
	for i := range f.clusterPlacements {
		ours("", "clusterplacements", &f.clusterPlacements[i])
	}
	for at, o := range f.objects {
		if o != nil {
			kind, _, _ := strings.Cut(at.key, " ")
			group, resource, _ := strings.Cut(kind, "/")
			add(at.cluster, group, resource, *o)
		}
	}
	for i := range f.assignments { // after the objects that they are of
		if o := f.assignments[i].Spec.Object; f.concerns(o.Namespace, o.Name) {
			ours("", "assignments", &f.assignments[i])
		}
	}
	for i := range f.works {
		if s := f.works[i].Spec.Source; f.concerns(s.Namespace, s.Name) {
			ours("", "works", &f.works[i])
		}
	}
	for cluster, records := range f.appliedWorks {
		for i := range records {
			if s := records[i].Spec.Work.Source; f.concerns(s.Namespace, s.Name) {
				ours(cluster, "appliedworks", &records[i])
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// restartFrom judges what was written so far, and begins anew, while the hub's API server is away: it is
// replaced by what it was then, and the resourceVersions of its objects go back. The clusters are
// what they are now.
func (x *invariantChecker) restartFrom(t *testing.T, then, now []write) {
	t.Helper()
	x.read(t)
	for _, what := range x.violations() {
		t.Error(what)
	}
	now = x.mergeNewest(now)
	x.writes = nil
	at := time.Now()
	for _, hub := range []bool{true, false} {
		for _, one := range map[bool][]write{true: then, false: now}[hub] {
			if one.Time = at; (one.cluster == "") == hub {
				x.writes = append(x.writes, one)
			}
		}
	}
}

// mergeNewest is what was live, with what was written since it was read: controllers go on meanwhile.
func (x *invariantChecker) mergeNewest(live []write) []write {
	all := slices.Clone(live)
	for i := range all {
		for _, one := range x.writes {
			if one.cluster == all[i].cluster && one.Key() == all[i].Key() && one.Subresource != "scale" && one.version() > all[i].version() {
				all[i].Object = one.Object
			}
		}
	}
	return all
}

// readSnapshot reads all that conditions of the test are judged from. Records come before Works: so no
// Work is older than its record because of that.
func (x *invariantChecker) readSnapshot(ctx context.Context, w *world) (*snapshot, error) {
	f := &snapshot{
		now: time.Now(), namespaces: x.namespaces, leases: map[string]coordinationv1.Lease{},
		appliedWorks: map[string][]v1alpha1.AppliedWork{}, objects: map[objectLocation]*unstructured.Unstructured{},
	}
	var errs []error
	for cluster, c := range w.Clusters {
		var list v1alpha1.AppliedWorkList
		errs = append(errs, c.Client.List(ctx, &list))
		f.appliedWorks[cluster] = list.Items
	}
	var clusters v1alpha1.ClusterList
	var leases coordinationv1.LeaseList
	var everywhere v1alpha1.ClusterPlacementList
	var customizations v1alpha1.CustomizationList
	var assignments v1alpha1.AssignmentList
	var works v1alpha1.WorkList
	for _, list := range []client.ObjectList{&works, &assignments, &customizations, &everywhere, &clusters, &leases} {
		errs = append(errs, w.Hub.Client.List(ctx, list))
	}
	f.works, f.assignments, f.customizations, f.clusterPlacements, f.clusters = works.Items, assignments.Items, customizations.Items, everywhere.Items, clusters.Items
	for _, l := range leases.Items {
		if cluster, ok := strings.CutPrefix(l.Namespace, v1alpha1.ClusterNamespacePrefix); ok && l.Name == v1alpha1.HeartbeatLease {
			f.leases[cluster] = l
		}
	}
	for _, ns := range x.namespaces {
		var placements v1alpha1.PlacementList
		errs = append(errs, w.Hub.Client.List(ctx, &placements, client.InNamespace(ns)))
		f.placements = append(f.placements, placements.Items...)
	}
	return f, errors.Join(append(errs, f.readObjects(ctx, w))...)
}

// report reports all that is broken at the end of a test, whose context has ended.
func (x *invariantChecker) report(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	x.read(t)
	leaks, _, err := x.secretLeaks(ctx, w)
	untrue, reasonsErr := x.conditionViolations(ctx, w)
	if err := errors.Join(err, reasonsErr); err != nil {
		t.Error(err)
	}
	for _, what := range slices.Concat(x.violations(), leaks, untrue) {
		t.Error(what)
	}
}

// startConditionChecks judges the conditions (I9) while the test runs, until stop is called. What an API
// server that is away does not tell is left to the next look.
func (x *invariantChecker) startConditionChecks(w *world) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for next := time.NewTimer(checkInterval); ; {
			select {
			case <-ctx.Done():
				next.Stop()
				return
			case <-next.C:
			}
			began := time.Now()
			f, err := x.readSnapshot(ctx, w)
			next.Reset(max(checkInterval, checkShare*time.Since(began)))
			if err != nil || x.allowStaleConditions.Load() || time.Since(f.now) > maxSnapshotTime {
				x.staleConditions.firstSeen = nil
				continue
			}
			x.staleConditions.observe(f.now, f.findFalseConditions())
		}
	}()
	return func() { cancel(); <-done }
}
