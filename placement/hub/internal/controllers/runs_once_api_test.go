// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "c:1"}}},
	}
}

func newJob(ns, name string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: batchv1.JobSpec{Template: podTemplate()}}
}

func jobKey(ns, name string) kinds.Key {
	return kinds.Key{GroupKind: schema.GroupKind{Group: "batch", Kind: "Job"}, Namespace: ns, Name: name}
}

// places creates a Placement of all objects of a namespace to clusters.
func (h *testHub) places(ns string, mode v1alpha1.MoveMode, clusters ...v1alpha1.ClusterName) *v1alpha1.Placement {
	h.t.Helper()
	p := &v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"},
		Spec:       v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Names: clusters}, Move: v1alpha1.MovePolicy{Mode: mode}},
	}
	h.create(p)
	return p
}

// merge patches an object.
func (h *testHub) merge(o client.Object, patch string) {
	h.t.Helper()
	if err := h.client.Patch(h.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		h.t.Fatal(err)
	}
}

// drain sets or ends the drain of a cluster.
func (h *testHub) drain(name string, on bool) {
	h.t.Helper()
	patch := `{"spec":{"drain":null}}`
	if on {
		patch = `{"spec":{"drain":{"mode":"Move"}}}`
	}
	h.merge(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
}

// worksEver returns a function that returns the clusters which have had a Work of an object since.
func (h *testHub) worksEver(key kinds.Key) func() map[string]bool {
	h.t.Helper()
	var list v1alpha1.WorkList
	if err := h.client.List(h.t.Context(), &list); err != nil {
		h.t.Fatal(err)
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(h.t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return h.client.Watch(ctx, &v1alpha1.WorkList{}, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(watcher.Stop)
	var mu sync.Mutex
	found := map[string]bool{}
	go func() {
		for event := range watcher.ResultChan() {
			if w, ok := event.Object.(*v1alpha1.Work); ok && kinds.KeyOf(w.Spec.Source) == key {
				cluster, _ := kinds.ClusterOfNamespace(w.Namespace)
				mu.Lock()
				found[cluster] = true
				mu.Unlock()
			}
		}
	}()
	return func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(found)
	}
}

// expectPlaced waits until an object is placed as requested, with a part of the message.
func (h *testHub) expectPlaced(key kinds.Key, text string) {
	h.t.Helper()
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, text)
}

// A Job that has started in a cluster runs in no other one: not by a drain, a taint, an annotation, or an annotation
// that first removes it.
func TestStartedJobStays(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("stays")
	h.cluster("stays-east", v1alpha1.ClusterSpec{})
	h.cluster("stays-west", v1alpha1.ClusterSpec{})
	h.places(ns, "", "stays-east", "stays-west")
	job, key := newJob(ns, "sums"), jobKey(ns, "sums")
	ever := h.worksEver(key)
	h.create(job)
	here := map[string]int32{"stays-east": 1}
	h.expectWorks(key, here)
	h.expectPlaced(key, "")
	stays := func() {
		t.Helper()
		h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonRunsOnce, "it has started in stays-east, or may have, and does not run a second time: it stays there")
		h.expectWorks(key, here)
	}
	h.drain("stays-east", true)
	stays()
	h.drain("stays-east", false)
	h.expectPlaced(key, "")
	east := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "stays-east"}}
	h.merge(east, `{"spec":{"taints":[{"key":"broken","effect":"NoExecute"}]}}`)
	stays()
	h.merge(east, `{"spec":{"taints":null}}`)
	h.expectPlaced(key, "")
	h.annotate(job, "stays-west")
	stays()
	h.annotate(job, "")
	h.expectWorks(key, map[string]int32{})
	gone := "it has started in stays-east, or may have, is no longer there"
	for _, cluster := range []string{"stays-west", "stays-east"} {
		h.annotate(job, cluster)
		h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonRunsOnce, gone)
	}
	h.merge(job, `{"metadata":{"annotations":{"placement.patchbay.io/clusters":null}}}`)
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonRunsOnce, gone)
	if got := ever(); len(got) != 1 || !got["stays-east"] {
		t.Errorf("clusters with a Work: got %v, want stays-east only", got)
	}
	if err := h.client.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	h.eventually("the Job to be gone", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(job), &batchv1.Job{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	again := newJob(ns, "sums") // it is another one
	h.create(again)
	h.expectWorks(key, here)
}

// A Job that no cluster has created, because its cluster refuses it, moves.
func TestRefusedJobMoves(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("refused-job")
	h.cluster("refused-job-east", v1alpha1.ClusterSpec{})
	h.cluster("refused-job-west", v1alpha1.ClusterSpec{})
	job, key := newJob(ns, "sums"), jobKey(ns, "sums")
	job.Annotations = map[string]string{v1alpha1.ClustersAnnotation: "refused-job-east", refuseKey: "no such class"}
	h.create(job)
	h.eventually("the refusal to be reported", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil {
			return err
		}
		if len(a.Status.Clusters) == 0 || a.Status.Clusters[0].Message == "" {
			return errNotYet
		}
		return nil
	})
	h.annotate(job, "refused-job-west")
	h.expectWorks(key, map[string]int32{"refused-job-west": 1})
	h.expectPlaced(key, "")
}

// A finished Job leaves a draining cluster, keeps its result at the hub, and comes to no cluster again.
func TestFinishedJobLeavesAndStaysAway(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("finished")
	h.cluster("finished-east", v1alpha1.ClusterSpec{})
	h.cluster("finished-west", v1alpha1.ClusterSpec{})
	h.places(ns, "", "finished-east", "finished-west")
	job, key := newJob(ns, "sums"), jobKey(ns, "sums")
	job.Annotations = map[string]string{finishKey: "true"}
	ever := h.worksEver(key)
	h.create(job)
	isComplete := func(ctx context.Context) error {
		found := &batchv1.Job{}
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(job), found); err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue && found.Status.Succeeded == 1 {
				return nil
			}
		}
		return fmt.Errorf("%w: %+v", errNotYet, found.Status)
	}
	h.eventually("the Job to be complete at the hub", isComplete)
	h.drain("finished-east", true)
	h.expectWorks(key, map[string]int32{})
	const note = "it has finished in finished-east and does not run a second time: no cluster is to have it"
	h.expectPlaced(key, note)
	h.drain("finished-east", false)
	h.create(newJob(ns, "next")) // of which the hub decides with the same inventory
	h.expectWorks(jobKey(ns, "next"), map[string]int32{"finished-east": 1})
	h.setAnnotation(job, "example.com/note", "decide again")
	h.expectPlaced(key, note)
	if err := isComplete(t.Context()); err != nil {
		t.Errorf("the result: %v", err)
	}
	if got := ever(); len(got) != 1 || !got["finished-east"] {
		t.Errorf("clusters with a Work: got %v, want finished-east only", got)
	}
}

// awaitsRemoval waits until an object is to leave a cluster that does not remove it yet, and checks that no other
// cluster has it.
func (h *testHub) awaitsRemoval(key kinds.Key, from, to string) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("%s to be ordered away from %s", key, from), func(ctx context.Context) error {
		w := &v1alpha1.Work{}
		if err := h.client.Get(ctx, key.Work(from), w); err != nil {
			return err
		}
		if w.Spec.Removal == nil || scope.IsRemoved(w) {
			return errNotYet
		}
		return nil
	})
	h.eventually("the move to be reported", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionMoveBlocked); c == nil || c.Reason == v1alpha1.ReasonAsExpected {
			return errNotYet
		}
		return nil
	})
	found, err := h.works(h.t.Context(), key)
	if _, comes := found[to]; err != nil || comes {
		h.t.Errorf("Works of %s: got %v, %v, want none for %s before %s has removed it", key, found, err, to, from)
	}
}

// A CronJob runs in one of its clusters, and does not move before it is gone from its cluster.
func TestCronJobRunsInOneCluster(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("cron")
	for _, name := range []string{"cron-east", "cron-north", "cron-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	h.places(ns, v1alpha1.MakeBeforeBreak, "cron-east", "cron-north", "cron-west")
	o := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "report", Annotations: map[string]string{holdKey: "true"}},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: podTemplate()}}},
	}
	key := kinds.Key{GroupKind: schema.GroupKind{Group: "batch", Kind: "CronJob"}, Namespace: ns, Name: "report"}
	h.create(o)
	h.expectWorks(key, map[string]int32{"cron-east": 0})
	h.expectPlaced(key, "")
	h.expectWorks(key, map[string]int32{"cron-east": 0})
	h.drain("cron-east", true)
	h.awaitsRemoval(key, "cron-east", "cron-north")
	h.release(key, "cron-east")
	h.expectWorks(key, map[string]int32{"cron-north": 0})
}

// release lets a cluster remove an object that it holds.
func (h *testHub) release(key kinds.Key, cluster string) {
	h.t.Helper()
	h.eventually("the removal to be reported", func(ctx context.Context) error {
		w := &v1alpha1.Work{}
		if err := h.client.Get(ctx, key.Work(cluster), w); err != nil {
			return err
		}
		w.Status.Revision = w.Spec.Revision
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved})
		return h.client.Status().Update(ctx, w)
	})
}

// A namespace's policy that makes before it breaks runs neither Jobs nor StatefulSets in two clusters.
func TestNamespacePolicyDoesNotRunJobsTwice(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("twice")
	h.cluster("twice-east", v1alpha1.ClusterSpec{})
	h.cluster("twice-west", v1alpha1.ClusterSpec{})
	placement := h.places(ns, v1alpha1.MakeBeforeBreak, "twice-east")
	h.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}})
	job, pod := newJob(ns, "sums"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "once"}, Spec: podTemplate().Spec}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db", Annotations: map[string]string{holdKey: "true"}},
		Spec:       appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Template: podTemplate()},
	}
	set.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	for _, o := range []client.Object{job, pod, set} {
		h.create(o)
	}
	podKey := kinds.Key{GroupKind: schema.GroupKind{Kind: "Pod"}, Namespace: ns, Name: "once"}
	setKey := kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, Namespace: ns, Name: "db"}
	h.expectWorks(jobKey(ns, "sums"), map[string]int32{"twice-east": 1})
	h.expectWorks(podKey, map[string]int32{"twice-east": 0})
	h.expectWorks(setKey, map[string]int32{"twice-east": 1})
	jobs, pods := h.worksEver(jobKey(ns, "sums")), h.worksEver(podKey)
	h.merge(placement, `{"spec":{"clusters":{"names":["twice-west"]}}}`)
	for _, key := range []kinds.Key{jobKey(ns, "sums"), podKey} {
		h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonRunsOnce, "it has started in twice-east")
	}
	h.awaitsRemoval(setKey, "twice-east", "twice-west")
	h.release(setKey, "twice-east")
	h.expectWorks(setKey, map[string]int32{"twice-west": 1})
	if j, p := jobs(), pods(); j["twice-west"] || p["twice-west"] {
		t.Errorf("clusters with a Work: got %v of the Job and %v of the Pod, want twice-east only", j, p)
	}
}
