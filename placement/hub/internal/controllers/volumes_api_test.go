// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// volumeDriver is the driver of all simulated volumes.
const volumeDriver = "csi.example.com"

// simulatedVolume returns what a simulated agent reports of the only volume: it carries each order out at once.
func simulatedVolume(order *v1alpha1.VolumeOrder) *v1alpha1.VolumeReport {
	source := &v1alpha1.VolumeSource{Driver: volumeDriver, Handle: "volume-1", AccessModes: []string{"ReadWriteOnce"}}
	if order.Action == v1alpha1.VolumeDiscard {
		source = nil
	}
	return &v1alpha1.VolumeReport{Action: order.Action, Source: source}
}

// A volume goes to the other cluster and back, with the object that uses it.
func TestVolumeTransfer(t *testing.T) {
	h := newTestHub(t)
	h.cluster("east", v1alpha1.ClusterSpec{})
	h.cluster("west", v1alpha1.ClusterSpec{})
	h.moveVolume()
}

// moveVolume moves two Deployments with one claim to another cluster, and does not let one of them go alone. It fails when both clusters may attach its volume at
// a time, by the orders that the hub has stored, or when the first one loses its claim too early.
func (h *testHub) moveVolume() {
	h.t.Helper()
	ns := h.namespace("transfer")
	for _, name := range []string{"east", "west"} {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"properties":{"storage.`+volumeDriver+`.domain":"rack-1"}}}`))
		if err := h.client.Patch(h.t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch); err != nil {
			h.t.Fatal(err)
		}
	}
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"}}
	p.Spec.Clusters.Names, p.Spec.Volumes = []v1alpha1.ClusterName{"east"}, v1alpha1.VolumesTransfer
	h.create(p)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	h.create(claim)
	key, data := deploymentKey(ns, "db"), kinds.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: ns, Name: "data"}
	other := deploymentKey(ns, "report")
	for _, name := range []string{key.Name, other.Name} {
		d := deployment(ns, name, "", 1)
		d.Annotations = nil
		d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		h.create(d)
	}
	h.expectWorks(key, map[string]int32{"east": 1})
	h.expectWorks(other, map[string]int32{"east": 1})
	h.expectWorks(data, map[string]int32{"east": 0})
	h.watchVolume(data)
	for _, to := range []string{"west", "east"} {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"clusters":{"names":[%q]}}}`, to))
		if err := h.client.Patch(h.t.Context(), p, patch); err != nil {
			h.t.Fatal(err)
		}
		h.expectWorks(key, map[string]int32{to: 1})
		h.expectWorks(other, map[string]int32{to: 1})
		h.expectWorks(data, map[string]int32{to: 0})
		h.eventually("the volume is bound in "+to, func(ctx context.Context) error {
			a := &v1alpha1.Assignment{}
			if err := h.client.Get(ctx, data.Assignment(), a); err != nil {
				return err
			}
			if v := a.Spec.Volume; v == nil || v.State != v1alpha1.VolumeBound || v.From != "" || string(v.To) != to {
				return fmt.Errorf("%w: %+v", errNotYet, v)
			}
			return nil
		})
	}
	h.annotate(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: other.Name}}, "west")
	h.expectReported(other, v1alpha1.ConditionPlaced, v1alpha1.ReasonVolumesRefused, "Deployment.apps "+ns+"/db uses it, too, and may stay in east")
	h.expectWorks(other, map[string]int32{"east": 1})
	h.expectWorks(data, map[string]int32{"east": 0})
}

// watchVolume fails the test when the orders about a volume, as stored at any time, let two clusters attach it.
func (h *testHub) watchVolume(key kinds.Key) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := h.client.Watch(ctx, &v1alpha1.WorkList{})
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	done := make(chan struct{})
	h.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		orders := map[string]*v1alpha1.Work{}
		for e := range w.ResultChan() {
			work, ok := e.Object.(*v1alpha1.Work)
			if !ok || kinds.KeyOf(work.Spec.Source) != key {
				continue
			}
			orders[work.Namespace] = work
			if e.Type == "DELETED" {
				delete(orders, work.Namespace)
			}
			var attach []string
			for ns, o := range orders {
				if mayAttach(o) {
					attach = append(attach, ns)
				}
			}
			if slices.Sort(attach); len(attach) > 1 {
				h.t.Errorf("both %s may attach the volume", strings.Join(attach, " and "))
			}
		}
	}()
}

// mayAttach reports whether a cluster may attach the volume, by the order that it has and what it has reported.
func mayAttach(w *v1alpha1.Work) bool {
	if w.Spec.Volume == nil || w.Spec.Removal != nil {
		return w.Spec.Removal == nil
	}
	if len(w.Status.Manifests) == 0 || w.Status.Manifests[0].Volume == nil {
		return true
	}
	released := func(a v1alpha1.VolumeAction) bool { return a == v1alpha1.VolumeFence || a == v1alpha1.VolumeDiscard }
	return !released(w.Spec.Volume.Action) || !released(w.Status.Manifests[0].Volume.Action)
}
