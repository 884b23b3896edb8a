// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// patience is how long something may take on a busy machine; no test measures time.
const patience = 4 * time.Minute

const poll = 100 * time.Millisecond

// awaitClusters waits until the hub reaches all clusters.
func (w *world) awaitClusters(ctx context.Context) error {
	for {
		var list v1alpha1.ClusterList
		err := w.Hub.Client.List(ctx, &list)
		reached := 0
		for _, c := range list.Items {
			if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable) && len(c.Status.Allocatable) > 0 {
				reached++
			}
		}
		if err == nil && reached == len(w.Clusters) {
			return nil
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return fmt.Errorf("await clusters: %d of %d are reachable: %w (last: %w)", reached, len(w.Clusters), ctx.Err(), err)
		}
	}
}

// eventually polls until try succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; <-time.After(poll) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %v", patience, what, err)
		}
	}
}

// namespace makes a namespace of the test's own at the hub.
func (w *world) namespace(t *testing.T) string {
	t.Helper()
	name := apitest.Name("test")
	if err := w.Hub.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	return name
}

// apply creates objects in a namespace at the hub.
func (w *world) apply(t *testing.T, c client.Client, ns, text string) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), len(text))
	for {
		o := &unstructured.Unstructured{}
		if decoder.Decode(&o.Object) != nil {
			return
		}
		if o.Object == nil {
			continue
		}
		if o.GetNamespace() == "" && !strings.HasPrefix(o.GetKind(), "Cluster") && o.GetKind() != "CustomResourceDefinition" {
			o.SetNamespace(ns)
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// replicas are the Deployment's spec.replicas by cluster, where it is.
func (w *world) replicas(ctx context.Context, ns, name string) (map[string]int32, error) {
	found := map[string]int32{}
	for cluster, c := range w.Clusters {
		d := &appsv1.Deployment{}
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, d)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[cluster] = *d.Spec.Replicas
	}
	return found, nil
}

// awaitReplicas waits until the Deployment web is in these clusters, and only there.
func (w *world) awaitReplicas(t *testing.T, ns string, want map[string]int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("web is in %v", want), func() error {
		got, err := w.replicas(t.Context(), ns, "web")
		if err != nil {
			return err
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("is in %v", got)
		}
		return nil
	})
}

// annotate sets where an object goes; nil takes the annotation off.
func (w *world) annotate(t *testing.T, o client.Object, clusters string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ClustersAnnotation, clusters)
	if err := w.Hub.Client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("user")); err != nil {
		t.Fatal(err)
	}
}

// available waits until the hub's Deployment has that many available replicas.
func (w *world) available(t *testing.T, ns, name string, n int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has %d available at the hub", name, n), func() error {
		d := &appsv1.Deployment{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas != n || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("status %+v", d.Status)
		}
		return nil
	})
}

// deployment is an ordinary Deployment; annotations and readyAfter may be "".
func deployment(name string, replicas int, clusters, readyAfter string) string {
	if readyAfter == "" {
		readyAfter = "0s"
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
  annotations: {placement.patchbay.io/clusters: %[3]q}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {%[4]s: %[5]q}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
`, name, replicas, clusters, bed.ReadyAfter, readyAfter)
}

// plain is a Deployment as its users know it: nothing of ours is in it.
func plain(name string, replicas int) string {
	return strings.ReplaceAll(deployment(name, replicas, "", ""), `  annotations: {placement.patchbay.io/clusters: ""}`+"\n", "")
}

func object(apiVersion, kind, ns, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(ns)
	o.SetName(name)
	return o
}
