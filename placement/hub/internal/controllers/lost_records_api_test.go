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
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// idle creates a reachable Cluster whose agent acts only when act is called.
func (h *testHub) idle(name string) (act func()) {
	h.t.Helper()
	ns := h.idleCluster(name, v1alpha1.ClusterSpec{})
	return func() {
		h.eventually("the agent of "+name+" to act", func(ctx context.Context) error { return simulateAgent(ctx, h.client, ns) })
	}
}

// unreachable waits until the hub reports that a cluster is not reachable.
func (h *testHub) unreachable(name string) {
	h.t.Helper()
	h.silence(name)
	h.eventually(name+" to be unreachable", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{}
		if err := h.client.Get(ctx, client.ObjectKey{Name: name}, c); err != nil || clusters.IsReachable(c) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
}

// work waits until an object's Work in a cluster satisfies is.
func (h *testHub) work(k kinds.Key, cluster, what string, is func(*v1alpha1.Work) bool) *v1alpha1.Work {
	h.t.Helper()
	w := &v1alpha1.Work{}
	h.eventually(fmt.Sprintf("the Work of %s in %s to be %s", k, cluster, what), func(ctx context.Context) error {
		*w = v1alpha1.Work{}
		if err := h.client.Get(ctx, k.Work(cluster), w); err != nil || !is(w) {
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

func setKey(ns string) kinds.Key {
	return kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, Namespace: ns, Name: "db"}
}

// (Safety 6) The hub takes an order to remove back also from a silent cluster, which might carry it
// out when it returns. Without a user's order a silent cluster gets none: neither a move nor a drain
// removes its objects.
func TestSilentClusterKeepsWhatItHas(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("taken-back")
	act := h.idle("back-east")
	h.cluster("back-west", v1alpha1.ClusterSpec{})
	objects := map[kinds.Key]client.Object{
		configKey(ns, "web"):   configMap(ns, "web", "back-east"),
		setKey(ns):             statefulSet(ns, "back-east"),
		configKey(ns, "moved"): configMap(ns, "moved", "back-east"),
	}
	for key, o := range objects {
		h.create(o)
		h.work(key, "back-east", "sent", notOrdered)
	}
	act()
	h.unreachable("back-east")
	h.annotate(objects[configKey(ns, "moved")], "back-west")
	h.expectReported(configKey(ns, "moved"), v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	for _, key := range []kinds.Key{configKey(ns, "web"), setKey(ns)} {
		h.annotate(objects[key], "")
		h.work(key, "back-east", "ordered removed", isOrdered)
		h.annotate(objects[key], "back-east")
		h.work(key, "back-east", "taken back", notOrdered)
	}
	h.expectWorks(configKey(ns, "moved"), map[string]int32{"back-east": 0, "back-west": 0})
	h.work(configKey(ns, "moved"), "back-east", "without an order", notOrdered)
}

// (Safety 2) A StatefulSet that a silent cluster has not confirmed reports that it waits.
func TestUnconfirmedStatefulSetWaits(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("unconfirmed")
	h.idle("unconfirmed-east")
	h.create(statefulSet(ns, "unconfirmed-east"))
	h.work(setKey(ns), "unconfirmed-east", "sent", notOrdered)
	h.unreachable("unconfirmed-east")
	h.expectReported(setKey(ns), v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, "unconfirmed-east does not report")
}

// (Safety 1) After a Placement is deleted, perhaps to be created again, a ClusterPlacement does not
// remove its objects from their clusters.
func TestLostPlacementDoesNotFallBack(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("fallback")
	for _, name := range []string{"fallback-east", "fallback-south"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	all := &v1alpha1.ClusterPlacement{ObjectMeta: metav1.ObjectMeta{Name: "fallback"}}
	all.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
	all.Spec.Clusters.Names = []v1alpha1.ClusterName{"fallback-south"}
	all.Spec.Objects = []v1alpha1.ObjectSelector{{Kind: "ConfigMap"}}
	h.create(all)
	t.Cleanup(func() { _ = h.client.Delete(context.Background(), all) })
	own := func() *v1alpha1.Placement {
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}
		p.Spec.Clusters.Names = []v1alpha1.ClusterName{"fallback-east"}
		return p
	}
	p := own()
	h.create(p)
	o, key := configMap(ns, "web", ""), configKey(ns, "web")
	h.create(o)
	h.expectWorks(key, map[string]int32{"fallback-east": 0})
	check := h.unremoved(ns)
	h.delete(p)
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "ClusterPlacement fallback would remove it from clusters where it runs: it stays in fallback-east")
	h.create(own())
	h.expectCondition(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	check()
	h.annotate(o, "fallback-south")
	h.expectWorks(key, map[string]int32{"fallback-south": 0})
}

// (Safety 1) An annotated object that loses the policy which completes its annotation keeps its
// clusters, too.
func TestLostPolicyBeneathAnAnnotation(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("beneath")
	names := []v1alpha1.ClusterName{"beneath-east", "beneath-west"}
	for _, name := range names {
		h.cluster(string(name), v1alpha1.ClusterSpec{})
	}
	rest := func() *v1alpha1.Placement {
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rest"}}
		p.Spec.Clusters.Names, p.Spec.Replicas.Mode = names, v1alpha1.ReplicasDuplicate
		p.Spec.Apply.Yield = []v1alpha1.FieldPath{"spec.paused"}
		return p
	}
	p := rest()
	h.create(p)
	d := deployment(ns, "web", "beneath-east,beneath-west", 2)
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	h.create(d)
	key := deploymentKey(ns, "web")
	h.expectWorks(key, map[string]int32{"beneath-east": 2, "beneath-west": 2})
	before := h.work(key, "beneath-east", "sent", notOrdered).Spec
	check := h.unremoved(ns)
	h.delete(p)
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "the annotation alone would remove it from clusters where it runs")
	h.expectWorks(key, map[string]int32{"beneath-east": 2, "beneath-west": 2})
	if after := h.work(key, "beneath-east", "there", notOrdered).Spec; after.Revision != before.Revision {
		t.Errorf("Work: got %+v, want it unchanged: %+v", after, before)
	}
	h.create(rest())
	h.expectCondition(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	check()
	h.annotate(d, "beneath-west")
	h.expectWorks(key, map[string]int32{"beneath-west": 2})
}

// (Safety 5) When the Work of an order is lost, the hub gives the order again: the cluster may still
// have the object.
func TestLostWorkIsOrderedAgain(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("lost-work")
	act := h.idle("lost-work-east")
	o, key := configMap(ns, "web", "lost-work-east"), configKey(ns, "web")
	h.create(o)
	h.work(key, "lost-work-east", "sent", notOrdered)
	act()
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
	h.eventually("the Assignment to record the Work's revision", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil || len(a.Status.Clusters) == 0 || a.Status.Clusters[0].Revision == 0 {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	h.delete(o)
	first := h.work(key, "lost-work-east", "ordered removed", isOrdered)
	h.delete(first)
	again := h.work(key, "lost-work-east", "ordered removed in a new Work", func(w *v1alpha1.Work) bool { return isOrdered(w) && w.UID != first.UID })
	if got := again.Spec.Removal.SourceUID; got != o.UID || again.Spec.Revision <= first.Spec.Revision {
		t.Errorf("order: got source %s and revision %d, want %s and more than %d", got, again.Spec.Revision, o.UID, first.Spec.Revision)
	}
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Errorf("the object was deleted before its cluster had removed it: %v", err)
	}
	act()
	h.expectWorks(key, map[string]int32{})
}

// (Safety 1) The hub knows the policy's onDelete also after the Assignment was lost: in a deleted
// namespace the Assignment may be deleted before its object.
func TestOrphansWithoutAnAssignment(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("orphans-lost")
	h.idle("orphans-lost-east")
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"orphans-lost-east"}}, OnDelete: v1alpha1.OnDeleteOrphan,
	}}
	h.create(p)
	o, key := configMap(ns, "web", ""), configKey(ns, "web")
	h.create(o)
	h.work(key, "orphans-lost-east", "sent", notOrdered)
	h.delete(p)
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "")
	a := &v1alpha1.Assignment{}
	if err := h.client.Get(t.Context(), key.Assignment(), a); err != nil {
		t.Fatal(err)
	}
	h.delete(a)
	h.delete(o)
	w := h.work(key, "orphans-lost-east", "ordered removed", isOrdered)
	if got := w.Spec.Removal.Policy; got != v1alpha1.OnDeleteOrphan {
		t.Errorf("removal: got policy %q, want %q of the policy", got, v1alpha1.OnDeleteOrphan)
	}
}

// (Safety 1) A dependency that an object no longer names stays, since Pods of the earlier template still
// use it, until the object leaves or a user removes the dependency.
func TestDependenciesOfAnEarlierTemplate(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("earlier")
	h.cluster("earlier-east", v1alpha1.ClusterSpec{})
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	h.create(service)
	for _, name := range []string{"web", "web-2", "later"} {
		h.create(configMap(ns, name, ""))
	}
	d := deployment(ns, "web", "earlier-east", 1)
	h.create(d)
	there := map[string]int32{"earlier-east": 0}
	serviceKey := kinds.Key{GroupKind: schema.GroupKind{Kind: "Service"}, Namespace: ns, Name: "web"}
	h.expectWorks(configKey(ns, "web"), there)
	h.expectWorks(serviceKey, there)
	check := h.unremoved(ns)
	h.patch(service, `{"spec":{"selector":{"app":"other"}}}`)
	h.patch(d, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2","envFrom":[{"configMapRef":{"name":"web-2"}}]}]}}}}`)
	h.expectWorks(configKey(ns, "web-2"), there)
	h.annotate(configMap(ns, "later", ""), "earlier-east") // the hub has had time to remove the others
	h.expectWorks(configKey(ns, "later"), there)
	h.expectWorks(configKey(ns, "web"), there)
	h.expectWorks(serviceKey, there)
	check()
	h.annotate(configMap(ns, "web", ""), "")
	h.expectWorks(configKey(ns, "web"), map[string]int32{})
	h.annotate(d, "")
	h.expectWorks(configKey(ns, "web-2"), map[string]int32{})
	h.expectWorks(serviceKey, map[string]int32{})
}

// The volume claim of a divided Deployment is placed in all clusters of the Deployment, and is not
// refused.
func TestClaimIsPlacedInEachCluster(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("claims")
	names := []v1alpha1.ClusterName{"claims-east", "claims-west"}
	for _, name := range names {
		h.cluster(string(name), v1alpha1.ClusterSpec{})
	}
	h.create(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: names},
	}})
	h.create(volumeClaim(ns, "data"))
	d := deployment(ns, "web", "", 2)
	d.Annotations = nil
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	h.create(d)
	key := kinds.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: ns, Name: "data"}
	h.expectWorks(key, map[string]int32{"claims-east": 0, "claims-west": 0})
	h.expectWorks(deploymentKey(ns, "web"), map[string]int32{"claims-east": 1, "claims-west": 1})
	h.expectCondition(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "")
}
