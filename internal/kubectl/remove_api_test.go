// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// created creates an object at the hub.
func created(t *testing.T, c client.Client, manifest map[string]any) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: manifest}
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// assigned creates an Assignment to the cluster east as the hub does.
func assigned(t *testing.T, c client.Client, o *unstructured.Unstructured, resource string) *v1alpha1.Assignment {
	t.Helper()
	gvk := o.GroupVersionKind()
	a := &v1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: v1alpha1.WorkName(gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName())},
		Spec: v1alpha1.AssignmentSpec{
			Object: v1alpha1.ObjectReference{
				Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Resource: resource, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
			},
			Targets: []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}},
		},
	}
	if a.Namespace == "" {
		a.Namespace = v1alpha1.SystemNamespace
	}
	if err := c.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

// ordered reports whether the removal of an object is ordered.
func ordered(ctx context.Context, t *testing.T, c client.Client, o *unstructured.Unstructured) bool {
	t.Helper()
	fresh := o.DeepCopy()
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), fresh); err != nil {
		t.Error(err)
	}
	value, ok := fresh.GetAnnotations()[v1alpha1.ClustersAnnotation]
	return ok && value == ""
}

func deployment(name string) map[string]any {
	labels := map[string]any{"app": name}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "shop", "name": name},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web"}}},
		}},
	}
}

// ingress returns an object of a group with dots, which is ambiguous with a version and a group.
func ingress(name string) map[string]any {
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"namespace": "shop", "name": name},
		"spec": map[string]any{"defaultBackend": map[string]any{"service": map[string]any{"name": "web", "port": map[string]any{"number": int64(80)}}}},
	}
}

// A user names an object as with kubectl and sees its clusters. A dry run changes nothing.
func TestRemove(t *testing.T) {
	t.Parallel()
	c, do := hubBench(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); err != nil {
		t.Fatal(err)
	}
	web := created(t, c, deployment("web"))
	assigned(t, c, web, "deployments")
	door := created(t, c, ingress("door"))
	assigned(t, c, door, "ingresses")
	plain := created(t, c, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "shop", "name": "plain"}})
	role := created(t, c, map[string]any{"apiVersion": rbacv1.SchemeGroupVersion.String(), "kind": "ClusterRole", "metadata": map[string]any{"name": "viewer"}})
	assigned(t, c, role, "clusterroles")

	t.Run("DryRun", func(t *testing.T) {
		for _, named := range [][]string{
			{"deployment/web"}, {"deployments/web"}, {"deploy", "web"}, {"Deployment/web"}, {"deployments.apps/web"}, {"deployments.v1.apps/web"}, {"Deployment.v1.apps", "web"},
			{"ing/door"}, {"ingresses.networking.k8s.io/door"}, {"Ingress.networking.k8s.io/door"}, {"ingresses.v1.networking.k8s.io/door"},
		} {
			out, err := do(append([]string{"remove", "-n", "shop"}, named...)...)
			want := "kubectl patchbay remove " + strings.Join(named, " ") + " --kubeconfig="
			if err != nil || !strings.HasPrefix(out, "east: ") || !strings.Contains(out, " is deleted\n") || !strings.Contains(out, want) || !strings.Contains(out, " --namespace=shop --yes\n") {
				t.Errorf("%v: got %q, %v, want the deleted object, and %q", named, out, err, want)
			}
		}
		if out, err := do("remove", "clusterrole/viewer", "-n", "shop"); err != nil || !strings.Contains(out, "east: ClusterRole viewer is deleted") {
			t.Errorf("cluster-scoped: got %q, %v", out, err)
		}
		if ordered(t.Context(), t, c, web) || ordered(t.Context(), t, c, door) || ordered(t.Context(), t, c, role) {
			t.Error("the dry run ordered a removal")
		}
	})
	t.Run("Wrong", func(t *testing.T) {
		for named, want := range map[string]string{
			"deploy/none": "Deployment shop/none does not exist at this hub", "nothing/web": "KIND nothing: must be a resource", "deployments.batch/web": "KIND deployments.batch",
			"cm/plain": "ConfigMap shop/plain has no Assignment",
		} {
			if _, err := do("remove", named, "-n", "shop", "--yes"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", named, err, want)
			}
		}
		if ordered(t.Context(), t, c, plain) {
			t.Error("the removal of an object that is not placed is ordered")
		}
	})
	t.Run("Preconditions", func(t *testing.T) { testPreconditions(t, c) })
}

// With --yes the command waits until the hub has removed the last target, or prints the reasons for
// which clusters still have the object.
func TestRemoveWaits(t *testing.T) {
	t.Parallel()
	c, do := hubBench(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); err != nil {
		t.Fatal(err)
	}
	web := created(t, c, deployment("web"))
	a := assigned(t, c, web, "deployments")
	a.Status.Clusters = []v1alpha1.ClusterReport{{Cluster: "east", Message: "deployments shop/web: its finalizers block the deletion"}}
	if err := c.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	out, err := do("remove", "deploy/web", "-n", "shop", "--yes", "--timeout=1s")
	for _, want := range []string{"Deployment shop/web is not removed within 1s", "\neast: deployments shop/web: its finalizers block the deletion"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("blocked: got %q, %v, want %q", out, err, want)
		}
	}
	if !ordered(t.Context(), t, c, web) {
		t.Error("blocked: the removal is not ordered")
	}
	done := make(chan error, 1)
	go func() { // patchbay-hub, which creates a deleted Assignment again
		time.Sleep(time.Second)
		again := a.DeepCopy()
		again.ResourceVersion, again.UID = "", ""
		err := c.Delete(t.Context(), a)
		if err == nil {
			time.Sleep(time.Second)
			err = c.Create(t.Context(), again)
		}
		if err == nil {
			again.Spec.Targets = nil
			err = c.Update(t.Context(), again)
		}
		done <- err
	}()
	began := time.Now()
	out, err = do("remove", "deploy/web", "-n", "shop", "--yes", "--timeout=30s")
	if err != nil || !strings.Contains(out, "The removal is ordered already.") || !strings.HasSuffix(out, "Deployment shop/web is removed from all clusters\n") {
		t.Errorf("repeated: got %q, %v", out, err)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("waited for %s, want until the targets are gone", took)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out, err := do("remove", "deploy/web", "-n", "shop", "--yes"); err != nil || !strings.Contains(out, "is in no cluster") {
		t.Errorf("once more: got %q, %v", out, err)
	}
}

// testPreconditions orders the removal of an object with an outdated UID, and with an outdated
// version.
func testPreconditions(t *testing.T, c client.Client) {
	t.Helper()
	o := created(t, c, deployment("changed"))
	read := &metav1.PartialObjectMetadata{}
	read.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), read); err != nil {
		t.Fatal(err)
	}
	other := read.DeepCopy()
	other.UID = "another"
	err := (&removal{object: other}).orderRemoval(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "was deleted and created again meanwhile") || ordered(t.Context(), t, c, o) {
		t.Errorf("another UID: got %v, want an error and no order", err)
	}
	o.SetLabels(map[string]string{"a": "b"})
	if err := c.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := (&removal{object: read}).orderRemoval(t.Context(), c); err != nil || !ordered(t.Context(), t, c, o) {
		t.Errorf("another version: got %v, want the order", err)
	}
}
