// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// kcp policy: an object that is deleted at the hub is removed from its cluster, or let go.
func TestKCPPolicyOnDelete(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, policy, want string }{
		"Delete": {"What nobody has any more is nowhere.", "Delete", ""},
		"Orphan": {"The policy says that it stays where it runs.", "Orphan", "east"},
	}
	w := shared
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := w.namespace(t)
			checkInvariants(t, w, ns)
			w.apply(t, w.Hub.Client, ns, fmt.Sprintf(`
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: p}
spec: {clusters: {names: [east]}, onDelete: %s}
---
%s`, tc.policy, plainDeployment("shop", 2)))
			w.awaitHubAvailable(t, ns, "shop", 2)
			shop := object("apps/v1", "Deployment", ns, "shop")
			if err := w.Hub.Client.Delete(t.Context(), shop); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the hub has forgotten it", func() error { return w.checkGoneFromHub(t, shop) })
			if got := w.clustersWith(t, shop); got != tc.want {
				t.Fatalf("%s\nis in %q, want %q", tc.reason, got, tc.want)
			}
			if tc.want != "" {
				checkLetGo(t, shop)
			}
		})
	}
}

// checkLetGo looks for signs that an object is ours.
func checkLetGo(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if _, ok := o.GetLabels()[v1alpha1.ManagedLabel]; ok || o.GetAnnotations()[v1alpha1.SourceUIDAnnotation] != "" {
		t.Errorf("let go: got labels %v, annotations %v, want none of ours", o.GetLabels(), o.GetAnnotations())
	}
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == v1alpha1.AgentFieldManager {
			t.Errorf("let go: fields are still ours: %s", entry.FieldsV1)
		}
	}
}

// kcp controllers: a Pod that its cluster loses is not made again anywhere. Evicted, it
// has Failed at the hub too; deleted, it is deleted there, as when a node is gone: whoever
// made it decides what comes next.
func TestKCPControllersLostPods(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	const pod = `---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers: [{name: c, image: "registry.example/app:1"}]
`
	w.apply(t, w.Hub.Client, ns, placement("two", "east, west")+fmt.Sprintf(pod, "evicted")+fmt.Sprintf(pod, "deleted"))
	evicted, deleted := w.awaitPodRunning(t, ns, "evicted"), w.awaitPodRunning(t, ns, "deleted")
	at := w.clustersWith(t, evicted)
	before := evicted.GetUID()
	failed := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed","reason":"Evicted","message":"no room"}}`))
	if err := w.Clusters[at].Client.Status().Patch(t.Context(), evicted, failed); err != nil {
		t.Fatal(err)
	}
	if err := w.Clusters[w.clustersWith(t, deleted)].Client.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the evicted Pod has failed at the hub", func() error {
		o := &corev1.Pod{}
		err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "evicted"}, o)
		if err == nil && (o.Status.Phase != corev1.PodFailed || o.Status.Reason != "Evicted") {
			err = fmt.Errorf("phase %s, reason %q", o.Status.Phase, o.Status.Reason)
		}
		return err
	})
	eventually(t, "the deleted Pod is gone at the hub", func() error {
		err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "deleted"}, &corev1.Pod{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if got := w.clustersWith(t, deleted); got != "" {
		t.Errorf("deleted Pod: is in %s, want it nowhere", got)
	}
	if got := w.clustersWith(t, evicted); got != at || evicted.GetUID() != before {
		t.Errorf("evicted Pod: is in %s with UID %s, want %s in %s", got, evicted.GetUID(), before, at)
	}
}

// awaitPodRunning waits until a Pod is ready, as the hub sees it, and returns it as its cluster has
// it. KWOK has no more to write then.
func (w *world) awaitPodRunning(t *testing.T, ns, name string) *unstructured.Unstructured {
	t.Helper()
	eventually(t, "Pod "+name+" is ready, as the hub sees it", func() error {
		o := &corev1.Pod{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, o); err != nil {
			return err
		}
		ready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
		return errorUnless(slices.ContainsFunc(o.Status.Conditions, ready), "status %+v", o.Status)
	})
	o := object("v1", "Pod", ns, name)
	w.clustersWith(t, o)
	return o
}
