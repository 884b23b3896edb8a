// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// killedDrainReplicas are those of each Deployment.
const killedDrainReplicas = 2

// A cluster is drained by hubs that are killed after, or before, each of their writes. No replica is missing meanwhile, a
// StatefulSet runs in one cluster, nothing is sent twice or removed without an order, and no more objects move at a time
// than the drain allows.
func TestDrainKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	h := newTestHubOn(t, env, 6*time.Minute)
	if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
		t.Fatal(err)
	}
	const maxMoves, both = 2, "east,west"
	ns := h.namespace("killed")
	d := h.watchDrain(ns, "east")
	stop := startProcess(t, env.Config)
	h.cluster("east", v1alpha1.ClusterSpec{})
	h.cluster("west", v1alpha1.ClusterSpec{Unschedulable: true})
	h.create(configMap(ns, "web-0", ""))
	h.create(deployment(ns, "web-0", both, killedDrainReplicas))
	h.create(statefulSet(ns, both))
	want := map[kinds.Key]map[string]int32{
		configKey(ns, "web-0"): {"east": 0}, deploymentKey(ns, "web-0"): {"east": killedDrainReplicas}, setKey(ns): {"east": 1},
	}
	for i := range 2 {
		name := fmt.Sprintf("web-%d", i+1)
		h.create(bare(ns, name, both, killedDrainReplicas))
		want[deploymentKey(ns, name)] = map[string]int32{"east": killedDrainReplicas}
	}
	for key, works := range want {
		h.expectWorks(key, works)
	}
	stop()

	h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}, `{"spec":{"unschedulable":null}}`)
	h.startDrain("east", maxMoves)
	runKilledHubs(t, env.Config, killedTransport{most: 1}, killedTransport{most: 1, before: true}, killedTransport{most: 2}, killedTransport{most: 3, before: true})
	created := map[string]int{}
	for key, works := range want {
		h.expectWorks(key, map[string]int32{"west": works["east"]})
		created["east "+key.String()], created["west "+key.String()] = 1, 1
	}
	h.setAnnotation(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-east", Name: v1alpha1.HeartbeatLease}}, v1alpha1.AppliedWorksAnnotation, "0")
	h.expectDrained("east", metav1.ConditionTrue, v1alpha1.ConditionDrained, "")
	d.check(created, maxMoves)
}

// startProcess runs a hub until stop is called.
func startProcess(t *testing.T, config *rest.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), logger()))
	m, err := newProcess(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Start(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// drainWatch judges what hubs store while they drain a cluster.
type drainWatch struct {
	*testHub

	from    string // the drained cluster
	stop    []func()
	readers sync.WaitGroup

	works   map[kinds.Key]map[string]*v1alpha1.Work // by cluster
	created map[string]int                          // Works, by cluster and object
	failed  []string

	leaving, blocked map[string]bool // objects
	most             int             // of the objects that leave at a time, without those that are blocked
}

// watchDrain watches the Works and Assignments of a namespace's objects.
func (h *testHub) watchDrain(ns, from string) *drainWatch {
	h.t.Helper()
	d := &drainWatch{
		testHub: h, from: from, works: map[kinds.Key]map[string]*v1alpha1.Work{}, created: map[string]int{},
		leaving: map[string]bool{}, blocked: map[string]bool{},
	}
	d.watch(&v1alpha1.WorkList{}, func(e watch.Event) {
		if w, ok := e.Object.(*v1alpha1.Work); ok && w.Spec.Source.Namespace == ns {
			d.judgeWork(e.Type, w)
		}
	})
	d.watch(&v1alpha1.AssignmentList{}, func(e watch.Event) {
		if a, ok := e.Object.(*v1alpha1.Assignment); ok && a.Namespace == ns {
			d.countLeaving(e.Type, a)
		}
	})
	return d
}

// watch calls see for each event of a kind.
func (d *drainWatch) watch(list client.ObjectList, see func(watch.Event)) {
	d.t.Helper()
	if err := d.client.List(d.t.Context(), list); err != nil {
		d.t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(d.t.Context(), list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.client.Watch(ctx, list, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.stop = append(d.stop, w.Stop)
	d.readers.Go(func() {
		for e := range w.ResultChan() {
			see(e)
		}
	})
}

func (d *drainWatch) failf(format string, args ...any) {
	d.failed = append(d.failed, fmt.Sprintf(format, args...))
}

// judgeWork judges a write of a Work.
func (d *drainWatch) judgeWork(event watch.EventType, w *v1alpha1.Work) {
	key := kinds.KeyOf(w.Spec.Source)
	cluster, _ := kinds.ClusterOfNamespace(w.Namespace)
	if d.works[key] == nil {
		d.works[key] = map[string]*v1alpha1.Work{}
	}
	before := d.works[key][cluster]
	switch d.works[key][cluster] = w; event {
	case watch.Added:
		d.created[cluster+" "+key.String()]++
	case watch.Deleted:
		delete(d.works[key], cluster)
		if w.Spec.Removal == nil {
			d.failf("%s/%s was deleted without an order", w.Namespace, w.Name)
		}
	}
	switch key.Kind {
	case "Deployment":
		if before != nil && sentReplicas(w) < sentReplicas(before) && d.available(key) < killedDrainReplicas {
			d.failf("%s has %d replicas in %s, and %d are available", key, sentReplicas(w), cluster, d.available(key))
		}
	case "StatefulSet":
		if n := len(d.works[key]); n > 1 && !isRemoved(d.works[key][d.from]) {
			d.failf("%s has Works in %d clusters", key, n)
		}
	case "ConfigMap":
		if user := d.works[deploymentKey(key.Namespace, key.Name)][cluster]; w.Spec.Removal != nil && user != nil && user.Spec.Removal == nil {
			d.failf("%s leaves %s before the Deployment", key, cluster)
		}
	}
}

// sentReplicas returns the replicas that a Work requests; 0 if it orders the removal.
func sentReplicas(w *v1alpha1.Work) int32 {
	if w.Spec.Removal != nil {
		return 0
	}
	n, _ := scope.RequestedReplicas(w)
	return n
}

// isRemoved reports whether a cluster has reported that it has removed the object.
func isRemoved(w *v1alpha1.Work) bool {
	c := meta.FindStatusCondition(w.Status.Conditions, "Applied")
	return w.Spec.Removal != nil && c != nil && c.Reason == v1alpha1.ReasonRemoved
}

// available returns how many replicas of a Deployment its clusters have reported as available, and may keep.
func (d *drainWatch) available(key kinds.Key) (sum int32) {
	for _, w := range d.works[key] {
		for _, m := range w.Status.Manifests {
			var status struct{ AvailableReplicas int32 }
			if m.Status != nil && json.Unmarshal(m.Status.Raw, &status) == nil {
				sum += min(sentReplicas(w), status.AvailableReplicas)
			}
		}
	}
	return sum
}

// countLeaving counts the objects that leave. A ConfigMap needs no slot, and a blocked move gives its own back.
func (d *drainWatch) countLeaving(event watch.EventType, a *v1alpha1.Assignment) {
	if a.Spec.Object.Kind == "ConfigMap" {
		return
	}
	t, ok := limits.TargetOf(a.Spec.Targets, d.from)
	delete(d.leaving, a.Name)
	delete(d.blocked, a.Name)
	if !ok || event == watch.Deleted || !limits.IsLeaving(t) || t.State == v1alpha1.TargetPending {
		return
	}
	d.leaving[a.Name] = true
	if meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionMoveBlocked) {
		d.blocked[a.Name] = true
	}
	d.most = max(d.most, len(d.leaving)-len(d.blocked))
}

// check ends the watch, and reports what was broken.
func (d *drainWatch) check(created map[string]int, maxMoves int) {
	d.t.Helper()
	for _, stop := range d.stop {
		stop()
	}
	d.readers.Wait()
	for _, text := range d.failed {
		d.t.Error(text)
	}
	if diff := cmp.Diff(created, d.created); diff != "" {
		d.t.Errorf("Works created, -want +got:\n%s", diff)
	}
	if d.most < 1 || d.most > maxMoves {
		d.t.Errorf("%d objects left %s at a time, want at least 1 and at most %d", d.most, d.from, maxMoves)
	}
}
