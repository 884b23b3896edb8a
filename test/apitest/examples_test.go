// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// What a reader copies has to be accepted, to the last field.
func TestExamplesAndReference(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	strict := client.WithFieldValidation(env.Client, metav1.FieldValidationStrict)
	for name, o := range documentedObjects(t) {
		if o.GroupVersionKind().Group != v1.GroupName {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o.GetKind() != v1.KindClusterNetwork && o.GetKind() != "TenantConfig" {
				o.SetNamespace("default")
			}
			if err := strict.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
}

// The examples' Pods get what they ask for of the examples' networks, but for the
// one that shows a mistake.
func TestExamplePodsAreServed(t *testing.T) {
	t.Parallel()
	nets := map[network.Ref]*network.Network{}
	pods := map[string]*corev1.Pod{}
	for name, o := range documentedObjects(t) {
		switch o.GetKind() {
		case v1.KindClusterNetwork:
			n, err := network.FromObject(convertTo(t, o, &v1.ClusterNetwork{}))
			if err != nil {
				t.Fatal(err)
			}
			nets[n.Ref] = n
		case "Pod":
			pods[name] = convertTo(t, o, &corev1.Pod{})
		}
	}
	if len(pods) < 2 {
		t.Fatalf("found %d Pods in the examples", len(pods))
	}
	for name, pod := range pods {
		err := resolveNetworks(pod, nets)
		if mistake := strings.Contains(name, "mistake"); (err != nil) != mistake {
			t.Errorf("%s: got %v, want an error: %v", name, err, mistake)
		}
	}
}

func resolveNetworks(pod *corev1.Pod, nets map[network.Ref]*network.Network) error {
	requests, err := network.ParseInterfaces(pod.Annotations)
	if err != nil {
		return err
	}
	for _, r := range requests {
		n, ok := nets[r.Ref("default")]
		if !ok {
			return os.ErrNotExist
		}
		if err := network.CheckRequest(n, "default", r); err != nil {
			return err
		}
	}
	return nil
}

func convertTo[T any](t *testing.T, o *unstructured.Unstructured, into *T) *T {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// documentedObjects are the objects in examples/ and in the reference, by file and name.
func documentedObjects(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	folder, err := source.Path("examples")
	if err != nil {
		t.Fatal(err)
	}
	objects := referenceObjects(t)
	for _, part := range exampleParts(t, folder) {
		more, err := apitest.ReadManifests(part)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, more...)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		byName[o.GetKind()+" "+o.GetName()] = o
	}
	return byName
}

// exampleParts are the files and folders in examples/ with Patchbay's objects. Those of the CRD compiler are
// templates, which internal/crdcompiler tests.
func exampleParts(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, entry := range entries {
		if entry.Name() != "crd-compiler" {
			parts = append(parts, filepath.Join(folder, entry.Name()))
		}
	}
	return parts
}

// referenceObjects are the objects in docs/api.md.
func referenceObjects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	path, err := source.Path("docs", "api.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for i, block := range strings.Split(string(text), "```yaml\n") {
		body, _, closed := strings.Cut(block, "```")
		if i == 0 || !closed || !strings.HasPrefix(body, "apiVersion: ") {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(body), &o.Object); err != nil {
			t.Fatalf("docs/api.md, block %d: %v", i, err)
		}
		o.SetName("reference-" + o.GetName())
		objects = append(objects, o)
	}
	if len(objects) < 2 {
		t.Fatalf("found %d objects in docs/api.md", len(objects))
	}
	return objects
}
