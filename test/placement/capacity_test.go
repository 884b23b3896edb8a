// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"testing"

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
	watch(t, w, ns)
	for _, name := range []string{"east", "west"} {
		w.cluster(t, name, `{"spec":{"limits":{"replicas":3}}}`)
		t.Cleanup(func() { w.cluster(t, name, `{"spec":{"limits":null}}`) })
	}
	w.apply(t, w.Hub.Client, ns, placement("two", "east, west")+"---\n"+plain("web", 2))
	w.awaitReplicas(t, ns, map[string]int32{"east": 1, "west": 1})
	w.available(t, ns, "web", 2)
	w.cluster(t, "east", `{"spec":{"limits":{"replicas":1}}}`)
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

// cluster patches a Cluster, as an infrastructure person does.
func (w *world) cluster(t *testing.T, name, patch string) {
	t.Helper()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.Hub.Client.Patch(context.Background(), c, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// scale sets the replicas of the Deployment web at the hub.
func (w *world) scale(t *testing.T, ns string, n int) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	if err := w.Hub.Client.Patch(t.Context(), object("apps/v1", "Deployment", ns, "web"), patch); err != nil {
		t.Fatal(err)
	}
}

// assignment finds the Assignment of an object.
func (w *world) assignment(ctx context.Context, ns, kind, name string) (*v1alpha1.Assignment, error) {
	var list v1alpha1.AssignmentList
	if err := w.Hub.Client.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for i, a := range list.Items {
		if a.Spec.Object.Kind == kind && a.Spec.Object.Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no Assignment of %s %s", kind, name)
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
