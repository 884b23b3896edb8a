// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// kcp 7: a limit refuses, growth spills over and moves no replica, and what fits nowhere
// is Unschedulable.
func TestKCP7Capacity(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	for _, name := range []string{"east", "west"} {
		w.patchCluster(t, name, `{"spec":{"limits":{"replicas":3}}}`)
		t.Cleanup(func() { w.patchCluster(t, name, `{"spec":{"limits":null}}`) })
	}
	w.apply(t, w.Hub.Client, ns, placement("two", "east, west")+"---\n"+plainDeployment("web", 2))
	w.awaitReplicas(t, ns, map[string]int32{"east": 1, "west": 1})
	w.awaitHubAvailable(t, ns, "web", 2)
	w.patchCluster(t, "east", `{"spec":{"limits":{"replicas":1}}}`)
	w.scale(t, ns, 4)
	w.awaitReplicas(t, ns, map[string]int32{"east": 1, "west": 3})
	w.scale(t, ns, 6)
	eventually(t, "two replicas fit nowhere", func() error {
		a, err := w.assignment(t.Context(), ns, "Deployment", "web")
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonUnschedulable {
			return fmt.Errorf("conditions %+v", a.Status.Conditions)
		}
		return nil
	})
	w.awaitReplicas(t, ns, map[string]int32{"east": 1, "west": 3})
}

// kcp 7: replicas go where the nodes have room, and from where no node takes them. A cluster that has room again gets
// nothing back until a user orders it.
func TestKCP7Room(t *testing.T) {
	w, ctx := shared, t.Context()
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	t.Cleanup(func() { w.removeRoom(t, ns) })
	if err := w.Clusters["west"].AddNode(ctx, "west-room", 64); err != nil {
		t.Fatal(err)
	}
	w.awaitFreeCPUs(t, "east", 64)
	w.awaitFreeCPUs(t, "west", 128)
	request := func(text, what string) string {
		return strings.ReplaceAll(text, "image: ", what+", image: ")
	}
	sixteen := `resources: {requests: {cpu: "16"}}`
	w.apply(t, w.Hub.Client, ns, request(deployment("web", 10, "east,west", ""), sixteen))
	w.awaitReplicas(t, ns, map[string]int32{"east": 4, "west": 6})
	w.awaitHubAvailable(t, ns, "web", 10)

	picky := strings.ReplaceAll(deployment("picky", 4, "east,west", ""), "      containers:", "      nodeSelector: {kubernetes.io/hostname: west-1}\n      containers:")
	w.apply(t, w.Hub.Client, ns, picky)
	eventually(t, "west has the replicas that no node of east takes", func() error {
		found, err := w.replicas(ctx, ns, "picky")
		if err != nil {
			return err
		}
		return errorUnless(found["east"] == 0 && found["west"] == 4, "is in %v", found)
	})
	w.awaitHubAvailable(t, ns, "picky", 4)

	decided := w.decisions(t, ns, "web", "picky")
	if err := w.Clusters["east"].AddNode(ctx, "west-1", 64); err != nil { // east has room, also for picky Pods
		t.Fatal(err)
	}
	w.apply(t, w.Hub.Client, ns, request(deployment("more", 3, "east", ""), sixteen)) // until the hub knows of the room
	w.awaitHubAvailable(t, ns, "more", 3)
	if now := w.decisions(t, ns, "web", "picky"); now != decided {
		t.Fatalf("decisions are %s, were %s: replicas moved although no user has ordered it", now, decided)
	}
	for _, name := range []string{"web", "picky"} {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"now"}}}`, v1alpha1.RebalanceAnnotation)
		if err := w.Hub.Client.Patch(ctx, object("apps/v1", "Deployment", ns, name), client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitReplicas(t, ns, map[string]int32{"east": 5, "west": 5})
	eventually(t, "picky is in both clusters", func() error {
		found, err := w.replicas(ctx, ns, "picky")
		if err != nil {
			return err
		}
		return errorUnless(found["east"] == 2 && found["west"] == 2, "is in %v", found)
	})
}

// awaitFreeCPUs waits until the hub has the report that the nodes of a cluster have so many free CPUs.
func (w *world) awaitFreeCPUs(t *testing.T, name string, cpus int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s reports %d free CPUs", name, cpus), func() error {
		c := cluster(name)
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		free := int64(0)
		if c.Status.Room != nil {
			for _, b := range c.Status.Room.Buckets {
				free += int64(b.Nodes) * b.CPU.Value()
			}
		}
		return errorUnless(free == cpus, "room is %+v", c.Status.Room)
	})
}

// decisions are the numbers of the decisions about Deployments.
func (w *world) decisions(t *testing.T, ns string, names ...string) (numbers string) {
	t.Helper()
	for _, name := range names {
		a, err := w.assignment(t.Context(), ns, "Deployment", name)
		if err != nil {
			t.Fatal(err)
		}
		numbers += fmt.Sprintf("%s: %d; ", name, a.Spec.Decision.Number)
	}
	return numbers
}

// removeRoom removes what TestKCP7Room has added.
func (w *world) removeRoom(t *testing.T, ns string) {
	t.Helper()
	for _, name := range []string{"web", "picky", "more"} {
		w.deleteAtEnd(t, object("apps/v1", "Deployment", ns, name))
	}
	for name, node := range map[string]string{"east": "west-1", "west": "west-room"} {
		c := w.Clusters[name].Client
		eventually(t, "no Pods are in "+name, func() error {
			var pods corev1.PodList
			if err := c.List(context.Background(), &pods, client.InNamespace(ns)); err != nil {
				return err
			}
			return errorUnless(len(pods.Items) == 0, "%d Pods", len(pods.Items))
		})
		if err := c.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
}

// placement is a policy for all of a namespace.
func placement(name, clusters string) string {
	return fmt.Sprintf(`
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: %s}
spec: {clusters: {names: [%s]}}
`, name, clusters)
}
