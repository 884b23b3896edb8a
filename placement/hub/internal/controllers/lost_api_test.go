// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// resumes lets a cluster that was silenced report again.
func (h *testHub) resumes(name string) {
	h.t.Helper()
	h.startAgent(name)
	lease := &metav1.PartialObjectMetadata{}
	lease.SetGroupVersionKind(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"})
	lease.Namespace, lease.Name = v1alpha1.ClusterNamespacePrefix+name, v1alpha1.HeartbeatLease
	h.patch(lease, fmt.Sprintf(`{"spec":{"leaseDurationSeconds":3600,"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro)))
	h.expectReachable(name)
}

// expectSummary waits until the summary of an object's Assignment has a text.
func (h *testHub) expectSummary(k kinds.Key, text string) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("the summary of %s to have %q", k, text), func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, k.Assignment(), a); err != nil || !strings.Contains(a.Status.Summary, text) {
			return fmt.Errorf("%w: %q %w", errNotYet, a.Status.Summary, err)
		}
		return nil
	})
}

// Others replace a silent cluster, whose target stays as Lost, gets no order, and does not count. When the cluster
// returns, it loses what others have got, and takes nothing back.
func TestLostCluster(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("lost")
	for _, name := range []string{"lost-a", "lost-b", "lost-c"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	h.create(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"lost-a", "lost-b", "lost-c"}},
		Offline:  v1alpha1.OfflinePolicy{AssumeLostAfter: &metav1.Duration{Duration: 20 * time.Second}},
	}})
	web, key := deployment(ns, "web", "", 6), deploymentKey(ns, "web")
	web.Annotations = nil
	h.create(web)
	h.expectWorks(key, map[string]int32{"lost-a": 2, "lost-b": 2, "lost-c": 2})
	h.expectApplied(key, "lost-a")
	for _, flap := range []string{"once", "twice"} {
		h.unreachable("lost-a")
		h.expectWorks(key, map[string]int32{"lost-a": 2, "lost-b": 3, "lost-c": 3})
		h.expectSummary(key, "lost-a=2 (Lost)")
		h.eventually("the status without the lost cluster", func(ctx context.Context) error {
			if err := h.client.Get(ctx, client.ObjectKeyFromObject(web), web); err != nil || web.Status.AvailableReplicas != 6 {
				return fmt.Errorf("%w: %s: %+v %w", errNotYet, flap, web.Status, err)
			}
			return nil
		})
		h.resumes("lost-a")
		h.expectWorks(key, map[string]int32{"lost-b": 3, "lost-c": 3})
		if flap == "twice" {
			break
		}
		h.setReplicas(web, 9) // what is new may go there
		h.expectWorks(key, map[string]int32{"lost-a": 3, "lost-b": 3, "lost-c": 3})
		h.setReplicas(web, 6)
		h.expectWorks(key, map[string]int32{"lost-a": 2, "lost-b": 2, "lost-c": 2})
		h.expectApplied(key, "lost-a")
	}
}

func (h *testHub) setReplicas(o client.Object, n int) {
	h.t.Helper()
	h.patch(o, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n))
}

// declareLost declares a cluster lost, with its last heartbeat.
func (h *testHub) declareLost(name string) {
	h.t.Helper()
	c := &v1alpha1.Cluster{}
	h.eventually(name+" to have a last heartbeat", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKey{Name: name}, c); err != nil || c.Status.LastHeartbeat == nil {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	h.patch(c, declaredAt(*c.Status.LastHeartbeat))
}

func declaredAt(at metav1.MicroTime) string {
	return fmt.Sprintf(`{"spec":{"declaredLost":{"lastHeartbeat":%q}}}`, at.UTC().Format(metav1.RFC3339Micro))
}

// expectDeclaredLost waits until a Cluster has the condition, and the Event.
func (h *testHub) expectDeclaredLost(name string, status metav1.ConditionStatus, reason string) {
	h.t.Helper()
	h.eventually("the condition DeclaredLost of "+name, func(ctx context.Context) error {
		c := &v1alpha1.Cluster{}
		if err := h.client.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		if found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionDeclaredLost); found == nil || found.Status != status || found.Reason != reason {
			return fmt.Errorf("%w: %+v", errNotYet, found)
		}
		return nil
	})
	h.expectEvent(metav1.NamespaceDefault, "Cluster", name, reason, "")
}

// What must run in one cluster at a time starts elsewhere only after an admin has declared its cluster lost; a Job then
// runs again, and what has data stays. The returning cluster loses what others have taken over.
func TestDeclareLost(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("declared")
	const east, west = "declared-a", "declared-b"
	h.cluster(east, v1alpha1.ClusterSpec{})
	h.cluster(west, v1alpha1.ClusterSpec{})
	h.create(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{east, west}},
		Offline:  v1alpha1.OfflinePolicy{AssumeLostAfter: &metav1.Duration{Duration: 20 * time.Second}},
	}})
	statefulSet := func(name string, claims ...corev1.PersistentVolumeClaim) kinds.Key {
		labels := map[string]string{"app": name}
		template := podTemplate()
		template.Labels, template.Spec.RestartPolicy = labels, corev1.RestartPolicyAlways
		h.create(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template, VolumeClaimTemplates: claims,
		}})
		return kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, Namespace: ns, Name: name}
	}
	queue := statefulSet("queue")
	db := statefulSet("db", corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}})
	sums, done := jobKey(ns, "sums"), jobKey(ns, "done")
	h.create(newJob(ns, "sums"))
	finished := newJob(ns, "done")
	finished.Annotations = map[string]string{finishKey: ""}
	h.create(finished)
	all := []kinds.Key{queue, db, sums, done}
	for _, key := range all {
		h.expectWorks(key, map[string]int32{east: 1})
		h.expectApplied(key, east)
	}
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: east}}
	if err := h.client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(declaredAt(metav1.NowMicro())))); err == nil ||
		!strings.Contains(err.Error(), "must be status.lastHeartbeat") {
		t.Fatalf("declare a cluster lost that reports: got error %v", err)
	}
	h.unreachable(east)
	h.expectCondition(queue, v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, "kubectl patchbay cluster declare-lost "+east)
	for _, key := range all { // after assumeLostAfter
		h.expectWorks(key, map[string]int32{east: 1})
	}
	h.declareLost(east)
	h.expectDeclaredLost(east, metav1.ConditionTrue, v1alpha1.ReasonDeclaredLost)
	for _, key := range []kinds.Key{queue, sums} {
		h.expectWorks(key, map[string]int32{east: 1, west: 1})
		h.expectSummary(key, east+" (Lost)")
	}
	h.expectCondition(db, v1alpha1.ConditionPlaced, v1alpha1.ReasonVolumesRefused, "PersistentVolumeClaim data has data in "+east+", which is lost")
	h.expectWorks(db, map[string]int32{east: 1})
	h.expectWorks(done, map[string]int32{east: 1})
	h.resumes(east)
	h.expectDeclaredLost(east, metav1.ConditionFalse, v1alpha1.ReasonReportedSince)
	for _, key := range []kinds.Key{queue, sums} {
		h.expectWorks(key, map[string]int32{west: 1})
		h.expectPlaced(key, "")
	}
	h.expectWorks(db, map[string]int32{east: 1})
	h.expectPlaced(db, "")
	h.unreachable(east) // the declaration was for the last time
	h.expectCondition(db, v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, "may still run the object")
}
