// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// idle makes a reachable Cluster whose agent does what it is asked to only when act is called.
func (b *bench) idle(name string) (act func()) {
	b.t.Helper()
	ns := b.joined(name, v1alpha1.ClusterSpec{})
	return func() {
		b.eventually("the agent of "+name+" to act", func(ctx context.Context) error { return play(ctx, b.client, ns) })
	}
}

// unreachable waits until a cluster that has been silenced counts as such.
func (b *bench) unreachable(name string) {
	b.t.Helper()
	b.silence(name)
	b.eventually(name+" to be silent", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{}
		if err := b.client.Get(ctx, client.ObjectKey{Name: name}, c); err != nil || reachable(c) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
}

// work waits for an object's Work in a cluster that is as it is to be.
func (b *bench) work(k Key, cluster, what string, is func(*v1alpha1.Work) bool) *v1alpha1.Work {
	b.t.Helper()
	w := &v1alpha1.Work{}
	b.eventually(fmt.Sprintf("the Work of %s in %s to be %s", k, cluster, what), func(ctx context.Context) error {
		*w = v1alpha1.Work{}
		if err := b.client.Get(ctx, k.work(cluster), w); err != nil || !is(w) {
			return fmt.Errorf("%w: removal %+v, %w", errNotYet, w.Spec.Removal, err)
		}
		return nil
	})
	return w
}

func isOrdered(w *v1alpha1.Work) bool  { return w.Spec.Removal != nil }
func notOrdered(w *v1alpha1.Work) bool { return w.Spec.Removal == nil }

func statefulSet(ns, clusters string) *appsv1.StatefulSet {
	d := deployment(ns, "db", clusters, 1)
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	return &appsv1.StatefulSet{ObjectMeta: d.ObjectMeta, Spec: appsv1.StatefulSetSpec{
		Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template, ServiceName: "db",
	}}
}

func setKey(ns string) Key {
	return Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, Namespace: ns, Name: "db"}
}

// (Safety 6) An order is taken back also from a cluster that does not report, which might carry it
// out when it returns. Without a person's order a silent cluster gets none: neither a move nor a
// drain takes from it what it has.
func TestSilentClusterKeepsWhatItHas(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("taken-back")
	act := b.idle("back-east")
	b.cluster("back-west", v1alpha1.ClusterSpec{})
	objects := map[Key]client.Object{
		configKey(ns, "web"):   configMap(ns, "web", "back-east"),
		setKey(ns):             statefulSet(ns, "back-east"),
		configKey(ns, "moved"): configMap(ns, "moved", "back-east"),
	}
	for key, o := range objects {
		b.create(o)
		b.work(key, "back-east", "sent", notOrdered)
	}
	act()
	b.unreachable("back-east")
	b.annotate(objects[configKey(ns, "moved")], "back-west")
	b.says(configKey(ns, "moved"), v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	for _, key := range []Key{configKey(ns, "web"), setKey(ns)} {
		b.annotate(objects[key], "")
		b.work(key, "back-east", "ordered removed", isOrdered)
		b.annotate(objects[key], "back-east")
		b.work(key, "back-east", "taken back", notOrdered)
	}
	b.runs(configKey(ns, "moved"), map[string]int32{"back-east": 0, "back-west": 0})
	b.work(configKey(ns, "moved"), "back-east", "without an order", notOrdered)
}

// (Safety 2) A StatefulSet that a silent cluster has not confirmed says that it waits.
func TestUnconfirmedStatefulSetWaits(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("unconfirmed")
	b.idle("unconfirmed-east")
	b.create(statefulSet(ns, "unconfirmed-east"))
	b.work(setKey(ns), "unconfirmed-east", "sent", notOrdered)
	b.unreachable("unconfirmed-east")
	b.says(setKey(ns), v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, "unconfirmed-east does not report")
}

// (Safety 1) A Placement that is deleted, perhaps to be made again, leaves no object to a
// ClusterPlacement that would take it away.
func TestLostPlacementDoesNotFallBack(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("fallback")
	for _, name := range []string{"fallback-east", "fallback-south"} {
		b.cluster(name, v1alpha1.ClusterSpec{})
	}
	all := &v1alpha1.ClusterPlacement{ObjectMeta: metav1.ObjectMeta{Name: "fallback"}}
	all.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
	all.Spec.Clusters.Names = []v1alpha1.ClusterName{"fallback-south"}
	all.Spec.Objects = []v1alpha1.ObjectSelector{{Kind: "ConfigMap"}}
	b.create(all)
	t.Cleanup(func() { _ = b.client.Delete(context.Background(), all) })
	own := func() *v1alpha1.Placement {
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}
		p.Spec.Clusters.Names = []v1alpha1.ClusterName{"fallback-east"}
		return p
	}
	p := own()
	b.create(p)
	o, key := configMap(ns, "web", ""), configKey(ns, "web")
	b.create(o)
	b.runs(key, map[string]int32{"fallback-east": 0})
	check := b.unremoved(ns)
	b.delete(p)
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "ClusterPlacement fallback would take it from where it runs: it stays in fallback-east")
	b.create(own())
	b.states(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	check()
	b.annotate(o, "fallback-south")
	b.runs(key, map[string]int32{"fallback-south": 0})
}

// (Safety 1) An annotated object that loses the policy which said the rest keeps what runs, too.
func TestLostPolicyBeneathAnAnnotation(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("beneath")
	names := []v1alpha1.ClusterName{"beneath-east", "beneath-west"}
	for _, name := range names {
		b.cluster(string(name), v1alpha1.ClusterSpec{})
	}
	rest := func() *v1alpha1.Placement {
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rest"}}
		p.Spec.Clusters.Names, p.Spec.Replicas.Mode = names, v1alpha1.ReplicasDuplicate
		p.Spec.Apply.Yield = []v1alpha1.FieldPath{"spec.paused"}
		return p
	}
	p := rest()
	b.create(p)
	d := deployment(ns, "web", "beneath-east,beneath-west", 2)
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	b.create(d)
	key := deploymentKey(ns, "web")
	b.runs(key, map[string]int32{"beneath-east": 2, "beneath-west": 2})
	before := b.work(key, "beneath-east", "sent", notOrdered).Spec
	check := b.unremoved(ns)
	b.delete(p)
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "the annotation alone would take it from where it runs")
	b.runs(key, map[string]int32{"beneath-east": 2, "beneath-west": 2})
	if after := b.work(key, "beneath-east", "there", notOrdered).Spec; after.Revision != before.Revision {
		t.Errorf("Work: got %+v, want it as it was: %+v", after, before)
	}
	b.create(rest())
	b.states(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	check()
	b.annotate(d, "beneath-west")
	b.runs(key, map[string]int32{"beneath-west": 2})
}

// (Safety 5) An order whose Work is lost is given again: what the cluster has is not forgotten.
func TestLostWorkIsOrderedAgain(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("lost-work")
	act := b.idle("lost-work-east")
	o, key := configMap(ns, "web", "lost-work-east"), configKey(ns, "web")
	b.create(o)
	b.work(key, "lost-work-east", "sent", notOrdered)
	act()
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	b.eventually("the Assignment to say what was sent", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := b.client.Get(ctx, key.assignment(), a); err != nil || len(a.Status.Clusters) == 0 || a.Status.Clusters[0].Revision == 0 {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	b.delete(o)
	first := b.work(key, "lost-work-east", "ordered removed", isOrdered)
	b.delete(first)
	again := b.work(key, "lost-work-east", "ordered removed again", func(w *v1alpha1.Work) bool { return isOrdered(w) && w.UID != first.UID })
	if got := again.Spec.Removal.SourceUID; got != o.UID || again.Spec.Revision <= first.Spec.Revision {
		t.Errorf("order: got source %s and revision %d, want %s and more than %d", got, again.Spec.Revision, o.UID, first.Spec.Revision)
	}
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Errorf("the object went before its cluster had removed it: %v", err)
	}
	act()
	b.runs(key, map[string]int32{})
}

// (Safety 1) What a policy said of deletion is known when its Assignment is lost, too: a namespace
// that is deleted may lose it before its objects.
func TestOrphansWithoutAnAssignment(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("orphans-lost")
	b.idle("orphans-lost-east")
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"orphans-lost-east"}}, OnDelete: v1alpha1.OnDeleteOrphan,
	}}
	b.create(p)
	o, key := configMap(ns, "web", ""), configKey(ns, "web")
	b.create(o)
	b.work(key, "orphans-lost-east", "sent", notOrdered)
	b.delete(p)
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "")
	a := &v1alpha1.Assignment{}
	if err := b.client.Get(t.Context(), key.assignment(), a); err != nil {
		t.Fatal(err)
	}
	b.delete(a)
	b.delete(o)
	w := b.work(key, "orphans-lost-east", "ordered removed", isOrdered)
	if got := w.Spec.Removal.Policy; got != v1alpha1.OnDeleteOrphan {
		t.Errorf("removal: got policy %q, want %q, as the policy said", got, v1alpha1.OnDeleteOrphan)
	}
}

// (Safety 1) What an object has taken along and names no more stays for the Pods that still use it,
// until the object leaves, or a person removes it.
func TestFollowersOfAnEarlierTemplate(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("earlier")
	b.cluster("earlier-east", v1alpha1.ClusterSpec{})
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	b.create(service)
	for _, name := range []string{"web", "web-2", "later"} {
		b.create(configMap(ns, name, ""))
	}
	d := deployment(ns, "web", "earlier-east", 1)
	b.create(d)
	there := map[string]int32{"earlier-east": 0}
	serviceKey := Key{GroupKind: schema.GroupKind{Kind: "Service"}, Namespace: ns, Name: "web"}
	b.runs(configKey(ns, "web"), there)
	b.runs(serviceKey, there)
	check := b.unremoved(ns)
	b.patch(service, `{"spec":{"selector":{"app":"other"}}}`)
	b.patch(d, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2","envFrom":[{"configMapRef":{"name":"web-2"}}]}]}}}}`)
	b.runs(configKey(ns, "web-2"), there)
	b.annotate(configMap(ns, "later", ""), "earlier-east") // the hub has had time to do worse
	b.runs(configKey(ns, "later"), there)
	b.runs(configKey(ns, "web"), there)
	b.runs(serviceKey, there)
	check()
	b.annotate(configMap(ns, "web", ""), "")
	b.runs(configKey(ns, "web"), map[string]int32{})
	b.annotate(d, "")
	b.runs(configKey(ns, "web-2"), map[string]int32{})
	b.runs(serviceKey, map[string]int32{})
}

// A claim that a divided Deployment takes along is where that is, and nothing is refused.
func TestClaimFollowsToEachCluster(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("claims")
	names := []v1alpha1.ClusterName{"claims-east", "claims-west"}
	for _, name := range names {
		b.cluster(string(name), v1alpha1.ClusterSpec{})
	}
	b.create(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: names},
	}})
	b.create(volumeClaim(ns, "data"))
	d := deployment(ns, "web", "", 2)
	d.Annotations = nil
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	b.create(d)
	key := Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: ns, Name: "data"}
	b.runs(key, map[string]int32{"claims-east": 0, "claims-west": 0})
	b.runs(deploymentKey(ns, "web"), map[string]int32{"claims-east": 1, "claims-west": 1})
	b.states(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
}
