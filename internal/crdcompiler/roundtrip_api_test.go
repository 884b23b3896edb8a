// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package crdcompiler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/internal/crdcompiler"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// atEachVersion runs a test at the lab's Kubernetes and at the oldest one, with its minor.
func atEachVersion(t *testing.T, test func(t *testing.T, env *apitest.Env, minor string)) {
	t.Helper()
	for name, start := range map[string]func(testing.TB) *apitest.Env{"Current": apitest.Start, "Oldest": apitest.StartOldest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := start(t)
			c, err := discovery.NewDiscoveryClientForConfig(env.Config)
			if err != nil {
				t.Fatal(err)
			}
			v, err := c.ServerVersion()
			if err != nil {
				t.Fatal(err)
			}
			test(t, env, v.Major+"."+strings.TrimSuffix(v.Minor, "+"))
		})
	}
}

// The example is compiled for the API server's own version and applied as kubectl apply does. Then the
// API server returns each object of testdata/roundtrip as it was: the test compares the JSON. All
// warnings of unknown fields are errors.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env, minor string) {
		t.Helper()
		installExample(t, env, minor)
		namespace := env.Namespace(t)
		files, err := filepath.Glob(filepath.Join("testdata", "roundtrip", "*.yaml"))
		if err != nil || len(files) < 3 {
			t.Fatalf("got objects %q, %v", files, err)
		}
		for _, file := range append(files, example(t, "cluster.yaml")) {
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				o := readObject(t, file)
				o.SetNamespace(namespace)
				want := o.DeepCopy()
				strict := client.WithFieldValidation(env.Client, metav1.FieldValidationStrict)
				if err := strict.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				got := &unstructured.Unstructured{}
				got.SetGroupVersionKind(o.GroupVersionKind())
				if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(asJSON(t, want.Object["spec"]), asJSON(t, got.Object["spec"])); diff != "" {
					t.Errorf("-sent +stored:\n%s", diff)
				}
			})
		}
	})
}

// Only what Kubernetes rejects as well is rejected, and the defaults of list keys are set.
func TestValues(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, container string
		// want is a part of the error, or of the stored container as JSON.
		fails bool
		want  string
	}{
		"DefaultOfKey":  {reason: "a port without a protocol is of TCP", container: "{name: a, ports: [{containerPort: 53}, {containerPort: 53, protocol: UDP}]}", want: `{"containerPort":53,"protocol":"TCP"}`},
		"NoDefault":     {reason: "Kubernetes sets all other defaults when the Pod is created", container: "{name: a, image: b}", want: `{"image":"b","name":"a"}`},
		"SamePort":      {reason: "two ports with the same number and protocol are one", container: "{name: a, ports: [{containerPort: 53, protocol: TCP}, {containerPort: 53}]}", fails: true, want: "Duplicate value"},
		"BadQuantity":   {reason: "a quantity has a pattern", container: "{name: a, resources: {limits: {cpu: much}}}", fails: true, want: "should match"},
		"Fraction":      {reason: "the API server has no type for a fraction or a text: it must be a text", container: "{name: a, resources: {limits: {cpu: 0.5}}}", fails: true, want: "must be of type integer"},
		"PortIsObject":  {reason: "a port is a number or a name", container: "{name: a, livenessProbe: {httpGet: {port: {}}}}", fails: true, want: "livenessProbe.httpGet.port"},
		"NoName":        {reason: "a container has a name", container: "{image: a}", fails: true, want: "name: Required value"},
		"UnknownField":  {reason: "a typing error is found", container: "{name: a, imag: b}", fails: true, want: `unknown field "spec.worker.template.spec.containers[0].imag"`},
		"ImageIsNumber": {reason: "an image is a text", container: "{name: a, image: 5}", fails: true, want: "image: Invalid value"},
	}
	atEachVersion(t, func(t *testing.T, env *apitest.Env, minor string) {
		t.Helper()
		installExample(t, env, minor)
		namespace := env.Namespace(t)
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := &unstructured.Unstructured{}
				text := fmt.Sprintf("{apiVersion: example.com/v1, kind: DaskCluster, metadata: {name: %s, namespace: %s}, spec: {scheduler: {service: {}, template: {spec: {containers: []}}}, worker: {template: {spec: {containers: [%s]}}}}}",
					apitest.Name("a"), namespace, tc.container)
				if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
					t.Fatal(err)
				}
				err := client.WithFieldValidation(env.Client, metav1.FieldValidationStrict).Create(t.Context(), o)
				got := fmt.Sprint(err)
				if !tc.fails && err == nil {
					containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "worker", "template", "spec", "containers")
					got = asJSON(t, containers)
				}
				if (err != nil) != tc.fails || !strings.Contains(got, tc.want) {
					t.Errorf("%s: got %s, want %q", tc.reason, got, tc.want)
				}
			})
		}
	})
}

// A client in Go writes what it does not set as null or as an empty object: it can store a template that
// it has made from Kubernetes' types, and reads what it has stored.
func TestTypedClient(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env, minor string) {
		t.Helper()
		installExample(t, env, minor)
		template := corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
		}
		fields := jsonObject(t, template)
		metadata, _ := fields["metadata"].(map[string]any)
		metadata["creationTimestamp"] = nil // as clients before Kubernetes 1.34 write it
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "DaskCluster",
			"metadata": map[string]any{"name": "typed", "namespace": env.Namespace(t)},
			"spec": map[string]any{
				"scheduler": map[string]any{"template": fields, "service": jsonObject(t, corev1.ServiceSpec{})},
				"worker":    map[string]any{"template": fields},
			},
		}}
		if err := client.WithFieldValidation(env.Client, metav1.FieldValidationStrict).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		stored, _, _ := unstructured.NestedMap(o.Object, "spec", "worker", "template")
		var got corev1.PodTemplateSpec
		if err := json.Unmarshal([]byte(asJSON(t, stored)), &got); err != nil {
			t.Fatal(err)
		}
		template.Spec.RestartPolicy = corev1.RestartPolicyNever // by the example's patch
		if diff := cmp.Diff(template, got); diff != "" {
			t.Errorf("-sent +stored:\n%s", diff)
		}
	})
}

// The real API server accepts each definition of its version, and of the newest one, as a property: Check
// has the code of the newest version only. Several definitions are in one CustomResourceDefinition, and nothing is
// stored.
func TestEveryDefinitionIsAccepted(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env, minor string) {
		t.Helper()
		openAPI, err := crdcompiler.ReadOpenAPI()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []string{minor, openAPI.Minors[len(openAPI.Minors)-1]} {
			t.Run(m, func(t *testing.T) {
				t.Parallel()
				checkAccepted(t, env, definitionsOf(t, m))
			})
		}
	})
}

func checkAccepted(t *testing.T, env *apitest.Env, definitions *crdcompiler.Definitions) {
	t.Helper()
	// The items of a list are accepted, so the list is.
	names := slices.DeleteFunc(definitions.Names(), func(name string) bool { return strings.HasSuffix(name, "List") })
	for together := range slices.Chunk(names, 40) {
		var properties strings.Builder
		for i, name := range together {
			fmt.Fprintf(&properties, "          p%d: {$ref: %s}\n", i, name)
		}
		crd := compileText(t, definitions, fmt.Sprintf(manyProperties, properties.String()))
		o := &unstructured.Unstructured{Object: crd.Object}
		if err := env.Client.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("definitions from %s on: %.2000v", together[0], err)
		}
	}
}

const manyProperties = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: manies.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Many, plural: manies, singular: many}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
%s`

func compileText(t *testing.T, d *crdcompiler.Definitions, text string) *crdcompiler.CRD {
	t.Helper()
	file := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return compileFile(t, d, file)
}

func compileFile(t *testing.T, d *crdcompiler.Definitions, file string) *crdcompiler.CRD {
	t.Helper()
	templates, err := crdcompiler.ReadTemplates(file)
	if err != nil {
		t.Fatal(err)
	}
	crd, err := crdcompiler.Compile(t.Context(), templates[0], d, crdcompiler.Options{CutRecursion: true})
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

func definitionsOf(t *testing.T, minor string) *crdcompiler.Definitions {
	t.Helper()
	openAPI, err := crdcompiler.ReadOpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := openAPI.Of(minor)
	if err != nil {
		t.Fatal(err)
	}
	return definitions
}

// installed has the API servers on which the example is installed. The tests of this package share them.
var installed = struct {
	sync.Mutex

	on map[*apitest.Env]bool
}{on: map[*apitest.Env]bool{}}

// installExample applies the compiled example once for each API server, with the annotation of kubectl
// apply, and waits until it is served.
func installExample(t *testing.T, env *apitest.Env, minor string) {
	t.Helper()
	installed.Lock()
	defer installed.Unlock()
	if installed.on[env] {
		return
	}
	crd := compileFile(t, definitionsOf(t, minor), example(t, "daskcluster.yaml"))
	file := filepath.Join(t.TempDir(), "daskcluster.yaml")
	data, err := crd.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	env.Kubectl(t, "apply", "--filename", file)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "DaskClusterList"})
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		served := &apiextensionsv1.CustomResourceDefinition{}
		if err := env.Client.Get(ctx, client.ObjectKey{Name: crd.Name}, served); err != nil {
			return false, err
		}
		return env.Client.List(ctx, list) == nil, nil
	})
	if err != nil {
		t.Fatalf("wait for %s to be served: %v", crd.Name, err)
	}
	installed.on[env] = true
}

func example(t *testing.T, name string) string {
	t.Helper()
	file, err := source.Path("examples", "crd-compiler", name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func readObject(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = yaml.YAMLToJSONStrict(data); err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(data, &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func jsonObject(t *testing.T, value any) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := json.Unmarshal([]byte(asJSON(t, value)), &object); err != nil {
		t.Fatal(err)
	}
	return object
}
