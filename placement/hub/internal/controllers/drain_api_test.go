// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// startDrain starts the drain of a cluster.
func (h *testHub) startDrain(name string, maxMoves int) {
	h.t.Helper()
	h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintf(`{"spec":{"drain":{"mode":"Move","maxConcurrentMoves":%d}}}`, maxMoves))
}

// leavingWatch watches which objects leave a cluster.
type leavingWatch struct {
	mu      sync.Mutex
	leaving map[string]bool // by kind and name
	order   []string        // in which they began
	most    int             // at a time, without dependencies
}

// watchLeaving watches the Assignments of a namespace until the test ends.
func (h *testHub) watchLeaving(ns, cluster string) *leavingWatch {
	h.t.Helper()
	w, err := h.client.Watch(h.t.Context(), &v1alpha1.AssignmentList{}, client.InNamespace(ns))
	if err != nil {
		h.t.Fatal(err)
	}
	l := &leavingWatch{leaving: map[string]bool{}}
	go func() {
		for e := range w.ResultChan() {
			if a, ok := e.Object.(*v1alpha1.Assignment); ok {
				l.see(a, cluster, e.Type == watch.Deleted)
			}
		}
	}()
	h.t.Cleanup(w.Stop)
	return l
}

func (l *leavingWatch) see(a *v1alpha1.Assignment, cluster string, deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := a.Spec.Object.Kind + " " + a.Spec.Object.Name
	t, ok := limits.TargetOf(a.Spec.Targets, cluster)
	if !ok || deleted || !limits.IsLeaving(t) {
		delete(l.leaving, name)
		return
	}
	if !l.leaving[name] {
		l.order = append(l.order, name)
	}
	l.leaving[name] = true
	moving := 0
	for name := range l.leaving {
		if name[:len("Deployment")] == "Deployment" {
			moving++
		}
	}
	l.most = max(l.most, moving)
}

// now returns which objects leave now, sorted, and the most that have left at a time.
func (l *leavingWatch) now() (names []string, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.leaving {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, l.most
}

// expectLeaving waits until these Deployments leave.
func (h *testHub) expectLeaving(l *leavingWatch, want ...string) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("%v to leave", want), func(context.Context) error {
		names, _ := l.now()
		got := slices.DeleteFunc(names, func(name string) bool { return name[:len("Deployment")] != "Deployment" })
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%w: %s", errNotYet, diff)
		}
		return nil
	})
}

// bare returns a Deployment without dependencies.
func bare(ns, name, clusters string, replicas int32) *appsv1.Deployment {
	d := deployment(ns, name, clusters, replicas)
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	return d
}

// Objects leave in the order of their priority and size, with their dependencies, which need no slot.
func TestDrainOrder(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("order")
	h.cluster("order-east", v1alpha1.ClusterSpec{})
	const both = "order-east,order-west"
	class := bare(ns, "class", both, 9)
	class.Spec.Template.Spec.PriorityClassName = "system-cluster-critical"
	urgent, last, typo := bare(ns, "urgent", both, 9), bare(ns, "last", both, 1), bare(ns, "typo", both, 3)
	urgent.Annotations[v1alpha1.DrainPriorityAnnotation] = "100"
	last.Annotations[v1alpha1.DrainPriorityAnnotation] = "-1"
	typo.Annotations[v1alpha1.DrainPriorityAnnotation] = "soon"
	large := bare(ns, "large", both, 1)
	large.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	small := deployment(ns, "small", both, 1)
	h.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "small"}})
	h.cluster("order-west", v1alpha1.ClusterSpec{Unschedulable: true})
	for _, d := range []*appsv1.Deployment{last, large, small, typo, urgent, class} {
		h.create(d)
		h.expectWorks(deploymentKey(ns, d.Name), map[string]int32{"order-east": *d.Spec.Replicas})
	}
	l := h.watchLeaving(ns, "order-east")
	h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "order-west"}}, `{"spec":{"unschedulable":null}}`)
	h.startDrain("order-east", 1)
	for _, d := range []*appsv1.Deployment{class, urgent, small, typo, large, last} {
		h.expectWorks(deploymentKey(ns, d.Name), map[string]int32{"order-west": *d.Spec.Replicas})
	}
	h.expectWorks(configKey(ns, "small"), map[string]int32{"order-west": 0})
	l.mu.Lock()
	defer l.mu.Unlock()
	want := []string{"Deployment class", "Deployment urgent", "Deployment small", "ConfigMap small", "Deployment typo", "Deployment large", "Deployment last"}
	got := slices.DeleteFunc(slices.Clone(l.order), func(name string) bool { return name == "ConfigMap small" })
	if diff := cmp.Diff(slices.DeleteFunc(want, func(name string) bool { return name == "ConfigMap small" }), got); diff != "" {
		t.Errorf("the objects began to leave in another order: -want +got\n%s", diff)
	}
	if !slices.Contains(l.order, "ConfigMap small") || l.most != 1 {
		t.Errorf("%d Deployments left at a time, want 1; order %v", l.most, l.order)
	}
	h.expectEvent(ns, "Deployment", "typo", v1alpha1.ReasonInvalidAnnotation, `must be an integer of 32 bits, such as "100": got "soon", which counts as 0`)
}

// shiftedClock is a clock that a test moves forward.
type shiftedClock struct {
	mu    sync.Mutex
	shift time.Duration
}

func (c *shiftedClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.shift)
}

func (c *shiftedClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift += d
}

// startLeader runs a hub of its own, and returns a function that ends it.
func startLeader(t *testing.T, config *rest.Config, now func() time.Time) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), logger()))
	opts, err := Options(ctx)
	if err != nil {
		t.Fatal(err)
	}
	opts.Logger = logr.FromContextOrDiscard(ctx)
	opts.GracefulShutdownTimeout = new(time.Duration)
	m, err := manager.New(config, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := Add(ctx, m, Config{preflightWait: time.Millisecond, Now: now}); err != nil {
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

// newDrainHub starts an API server for a test that runs its own hub.
func newDrainHub(t *testing.T) (*testHub, *apitest.Env) {
	t.Helper()
	env := apitest.New(t)
	if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
		t.Fatal(err)
	}
	return newTestHubOn(t, env, 3*time.Minute), env
}

// touch makes the hub reconcile an object.
func (h *testHub) touch(o client.Object) {
	h.t.Helper()
	h.setAnnotation(o, "touched", time.Now().String())
}

// A move that makes no step for a minute gives its slot to another object, and as many may be blocked as may move. When
// more are blocked, one moves at a time.
func TestDrainFreesSlotsOfBlocked(t *testing.T) {
	h, env := newDrainHub(t)
	clock := &shiftedClock{}
	startLeader(t, env.Config, clock.now)
	ns := h.namespace("blocked")
	h.cluster("blocked-east", v1alpha1.ClusterSpec{})
	h.idleCluster("blocked-west", v1alpha1.ClusterSpec{Unschedulable: true}) // nothing becomes ready there
	var all []*appsv1.Deployment
	for i := range 4 {
		d := bare(ns, fmt.Sprintf("web-%d", i), "blocked-east,blocked-west", 1)
		all = append(all, d)
		h.create(d)
		h.expectWorks(deploymentKey(ns, d.Name), map[string]int32{"blocked-east": 1})
	}
	l := h.watchLeaving(ns, "blocked-east")
	h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "blocked-west"}}, `{"spec":{"unschedulable":null}}`)
	h.startDrain("blocked-east", 1)
	h.expectLeaving(l, "Deployment web-0")
	clock.advance(2 * time.Minute)
	h.touch(all[0])
	h.expectLeaving(l, "Deployment web-0", "Deployment web-1")
	clock.advance(2 * time.Minute)
	h.touch(all[1])
	h.expectLeaving(l, "Deployment web-0", "Deployment web-1", "Deployment web-2")
	h.eventually("the drain to name the blocked objects", func(ctx context.Context) error {
		s, err := h.drainStatus(ctx, "blocked-east")
		if err != nil || s.Blocked != 2 || s.Moving != 1 || s.Waiting != 1 || len(s.Blockers) != 2 || s.Blockers[0].Reason != v1alpha1.ReasonMoveBlocked {
			return fmt.Errorf("%w: %+v, %w", errNotYet, s, err)
		}
		return nil
	})
	h.touch(all[3])
	h.expectSeen(deploymentKey(ns, "web-3"), all[3])
	if names, most := l.now(); len(names) != 3 || most != 3 {
		t.Errorf("%v leave, %d at a time, want 3: two are blocked, and one moves", names, most)
	}
}

// drainStatus returns the progress of a drain.
func (h *testHub) drainStatus(ctx context.Context, cluster string) (v1alpha1.DrainStatus, error) {
	c := &v1alpha1.Cluster{}
	if err := h.client.Get(ctx, client.ObjectKey{Name: cluster}, c); err != nil || c.Status.Drain == nil {
		return v1alpha1.DrainStatus{}, err
	}
	return *c.Status.Drain, nil
}

// expectSeen changes an object, and waits until the hub has sent the change to its clusters.
func (h *testHub) expectSeen(k kinds.Key, d *appsv1.Deployment) {
	h.t.Helper()
	h.patch(d, fmt.Sprintf(`{"spec":{"minReadySeconds":%d}}`, d.Spec.MinReadySeconds+1))
	h.eventually("the hub to have seen "+k.String(), func(ctx context.Context) error {
		var list v1alpha1.WorkList
		if err := h.client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if w := &list.Items[i]; kinds.KeyOf(w.Spec.Source) == k && w.Spec.Removal == nil && w.Spec.SourceGeneration < d.Generation {
				return errNotYet
			}
		}
		return nil
	})
}

// A new leader continues a drain within its limit.
func TestDrainSurvivesLeader(t *testing.T) {
	h, env := newDrainHub(t)
	stop := startLeader(t, env.Config, time.Now)
	ns := h.namespace("leaders")
	for _, name := range []string{"leaders-east", "leaders-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	var all []*appsv1.Deployment
	for i := range 5 {
		d := bare(ns, fmt.Sprintf("web-%d", i), "leaders-east,leaders-west", 2)
		if i < 2 {
			d.Annotations[holdKey] = ""
		}
		all = append(all, d)
		h.create(d)
		h.expectWorks(deploymentKey(ns, d.Name), map[string]int32{"leaders-east": 1, "leaders-west": 1})
	}
	l := h.watchLeaving(ns, "leaders-east")
	h.startDrain("leaders-east", 2)
	h.expectLeaving(l, "Deployment web-0", "Deployment web-1") // east does not remove them
	before, err := h.drainStatus(t.Context(), "leaders-east")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		stop()
		stop = startLeader(t, env.Config, time.Now)
		for _, d := range all[2:] {
			h.expectSeen(deploymentKey(ns, d.Name), d)
		}
	}
	if _, most := l.now(); most != 2 {
		t.Errorf("%d objects left at a time, want 2", most)
	}
	h.eventually("the progress", func(ctx context.Context) error {
		s, err := h.drainStatus(ctx, "leaders-east")
		if err != nil || s.Left != 5 || s.Total != 5 || s.Moving+s.Blocked != 2 || s.Waiting != 3 {
			return fmt.Errorf("%w: %+v, %w", errNotYet, s, err)
		}
		if !before.StartTime.IsZero() && !s.StartTime.Equal(&before.StartTime) {
			t.Errorf("the drain began at %s, and by the next leader at %s", before.StartTime, s.StartTime)
		}
		return nil
	})
	for _, d := range all[:2] {
		h.patch(d, `{"metadata":{"annotations":{"`+holdKey+`":null}}}`)
		h.eventually("the report of the removal", func(ctx context.Context) error { // the hub may write the Work, too
			w := &v1alpha1.Work{}
			if err := h.client.Get(ctx, deploymentKey(ns, d.Name).Work("leaders-east"), w); err != nil {
				return client.IgnoreNotFound(err)
			}
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: "Applied", Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved})
			w.Status.Revision = w.Spec.Revision
			return h.client.Status().Update(ctx, w)
		})
	}
	for _, d := range all {
		h.expectWorks(deploymentKey(ns, d.Name), map[string]int32{"leaders-west": 2})
	}
	if _, most := l.now(); most != 2 {
		t.Errorf("%d objects left at a time, want 2", most)
	}
}

// At the deadline of a drain that proceeds, objects leave though nothing replaces them, except those without another
// cluster. A drain that holds removes nothing.
func TestDrainProceeds(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("proceeds")
	for _, name := range []string{"proceeds-east", "holds-east"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	h.idleCluster("proceeds-west", v1alpha1.ClusterSpec{Unschedulable: true}) // nothing becomes ready there
	web, pinned, held := bare(ns, "web", "proceeds-east,proceeds-west", 2), bare(ns, "pinned", "proceeds-east", 1), bare(ns, "held", "holds-east,proceeds-west", 2)
	for d, cluster := range map[*appsv1.Deployment]string{web: "proceeds-east", pinned: "proceeds-east", held: "holds-east"} {
		h.create(d)
		h.expectWorks(deploymentKey(ns, d.Name), map[string]int32{cluster: *d.Spec.Replicas})
	}
	check := h.unremoved(ns)
	h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "proceeds-west"}}, `{"spec":{"unschedulable":null}}`)
	drain := func(cluster string, deadline time.Time, on v1alpha1.OnDeadline) {
		t.Helper()
		h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
			fmt.Sprintf(`{"spec":{"drain":{"mode":"Move","deadline":%q,"onDeadline":%q}}}`, deadline.UTC().Format(time.RFC3339), on))
	}
	drain("proceeds-east", time.Now().Add(time.Hour), v1alpha1.DeadlineProceed)
	drain("holds-east", time.Now(), v1alpha1.DeadlineHold)
	h.expectWorks(deploymentKey(ns, "web"), map[string]int32{"proceeds-east": 2, "proceeds-west": 2})
	h.expectWorks(deploymentKey(ns, "held"), map[string]int32{"holds-east": 2, "proceeds-west": 2})
	h.expectDrained("holds-east", metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 objects have not left by spec.drain.deadline: Deployment proceeds/held")
	check()
	drain("proceeds-east", time.Now().Add(3*time.Second), v1alpha1.DeadlineProceed)
	h.expectWorks(deploymentKey(ns, "web"), map[string]int32{"proceeds-west": 2})
	h.expectWorks(deploymentKey(ns, "pinned"), map[string]int32{"proceeds-east": 1})
	h.expectWorks(deploymentKey(ns, "held"), map[string]int32{"holds-east": 2, "proceeds-west": 2})
	h.expectDrained("proceeds-east", metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 of 1 objects cannot leave: Deployment proceeds/pinned (Pinned)")
}
