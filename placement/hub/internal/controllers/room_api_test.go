// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// reportRoom reports one node with so many free CPUs.
func (h *testHub) reportRoom(cluster string, cpus int64) {
	h.t.Helper()
	room := v1alpha1.Room{Buckets: []v1alpha1.RoomBucket{{Nodes: 1, CPU: *resource.NewQuantity(cpus, resource.DecimalSI), Memory: resource.MustParse("64Gi"), Pods: 100}}}
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"room": room}})
	if err == nil {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
		err = h.client.Status().Patch(h.t.Context(), c, client.RawPatch(types.MergePatchType, raw))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// expectUnplaced waits until replicas of an object have no room, for which the condition names these causes.
func (h *testHub) expectUnplaced(key kinds.Key, causes ...string) {
	h.t.Helper()
	h.eventually(key.Name+" has replicas without room", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		for _, cause := range causes {
			if c == nil || c.Reason != v1alpha1.ReasonUnschedulable || !strings.Contains(c.Message, cause) {
				return fmt.Errorf("%w: %+v, want %q", errNotYet, c, cause)
			}
		}
		return nil
	})
}

// Replicas spill over to a cluster with room, those that fit nowhere wait for it, and none moves until a user orders to
// rebalance.
func TestRoom(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	ns := h.namespace("room")
	for name, cpus := range map[string]int64{"room-east": 2, "room-west": 6} {
		h.cluster(name, v1alpha1.ClusterSpec{})
		h.reportRoom(name, cpus)
	}
	requests := func(d *appsv1.Deployment, cpus string) *appsv1.Deployment {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
		return d
	}
	h.create(requests(deployment(ns, "huge", "room-east,room-west", 1), "100")) // until the hub has read the room
	h.expectUnplaced(deploymentKey(ns, "huge"), "1 of 1", "room-east has room for 0", "room-west has room for 0")
	d := requests(deployment(ns, "web", "room-east,room-west", 6), "1")
	h.create(d)
	key := deploymentKey(ns, "web")
	h.expectWorks(key, map[string]int32{"room-east": 2, "room-west": 4})
	scale := func(replicas int) {
		patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
		if err := h.client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	scale(10)
	h.expectUnplaced(key, "2 of 10", "room-east has room for 2 (its nodes have too little free for more: they lack CPU)")
	h.expectWorks(key, map[string]int32{"room-east": 2, "room-west": 6})
	h.reportRoom("room-west", 0)
	h.reportRoom("room-east", 10)
	h.expectWorks(key, map[string]int32{"room-east": 4, "room-west": 6})
	h.setAnnotation(d, v1alpha1.RebalanceAnnotation, "1")
	h.expectWorks(key, map[string]int32{"room-east": 5, "room-west": 5})
	scale(11)
	h.expectWorks(key, map[string]int32{"room-east": 6, "room-west": 5})
}
