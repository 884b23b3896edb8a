// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func TestLint(t *testing.T) {
	t.Parallel()
	if out, err := helm(t, "lint", "--strict", chart(t, "patchbay"), chart(t, "patchbay-crds")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Both charts together are what the kustomizations are, except for the namespace of the release, which Helm does
// not own.
func TestSameAsKustomization(t *testing.T) {
	t.Parallel()
	agent := map[string]any{"parts": map[string]any{"placementAgent": map[string]any{"enabled": true, "cluster": "east"}}}
	cases := map[string]struct {
		reason, kustomization, chart string
		values                       any
		change                       func(want, got map[string]map[string]any)
	}{
		"Programs": {
			reason: "The default values change nothing.", kustomization: "workloads", chart: "patchbay",
			change: func(want, _ map[string]map[string]any) { delete(want, "Namespace <nil>/"+namespace) },
		},
		"Definitions": {
			reason: "Only the annotation that keeps them is added.", kustomization: "crds", chart: "patchbay-crds",
			change: func(_, got map[string]map[string]any) {
				for _, o := range got {
					delete(mapOf(t, field(t, o, "metadata", "annotations")), "helm.sh/resource-policy")
				}
			},
		},
		"Agent": {
			reason: "The agent has its cluster, and its definition is in the other chart.", kustomization: "placement", chart: "patchbay", values: agent,
			change: func(want, got map[string]map[string]any) {
				delete(want, "Namespace <nil>/"+namespace)
				maps.DeleteFunc(want, func(key string, _ map[string]any) bool { return strings.HasPrefix(key, "CustomResourceDefinition ") })
				maps.DeleteFunc(got, func(key string, _ map[string]any) bool { _, ok := want[key]; return !ok })
				for _, o := range want {
					if _, ok := o["aggregationRule"]; ok {
						delete(o, "rules") // Kubernetes' own controller writes them
					}
				}
				spec := mapOf(t, field(t, workload(t, want, "placementAgent"), "spec", "template", "spec"))
				for _, e := range listOf(t, firstOf(t, spec, "containers")["env"]) {
					if v := mapOf(t, e); v["name"] == "CLUSTER" {
						v["value"] = "east"
					}
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := helm(t, "template", "any", chart(t, tc.chart), "--namespace", namespace, "--values", valuesFile(t, tc.values))
			if err != nil {
				t.Fatal(err)
			}
			want, got := kustomization(t, tc.kustomization), objects(t, text)
			tc.change(want, got)
			if len(want) < 3 {
				t.Fatalf("the kustomization has %d objects", len(want))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s objects: -kustomization +chart\n%s", tc.reason, diff)
			}
		})
	}
}

// kustomization returns the objects of a kustomization in deployments.
func kustomization(t *testing.T, folder string) map[string]map[string]any {
	t.Helper()
	found, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path(t, "deployments", folder))
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	for _, r := range found.Resources() {
		o, err := r.Map() // its YAML has further empty lines in expressions
		if err != nil {
			t.Fatal(err)
		}
		objects[key(o)] = normalized(t, o)
	}
	return objects
}

// normalized returns an object with the types that JSON has.
func normalized(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The manifests name the namespace at many places: Pods of the controller's own namespace, for example, must not wait
// for its webhooks.
func TestNamespaceOfTheRelease(t *testing.T) {
	t.Parallel()
	values := map[string]any{"parts": map[string]any{"placementAgent": map[string]any{"enabled": true, "cluster": "east"}}}
	base, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	if count := strings.Count(base, namespace); count < 20 {
		t.Fatalf("the objects name the namespace %d times", count)
	}
	// It is also a text for YAML if it looks like a number.
	for _, name := range []string{"other", "1234"} {
		got, err := render(t, values, "--namespace", name)
		if err != nil {
			t.Fatal(err)
		}
		want := objects(t, strings.ReplaceAll(base, namespace, name))
		if name == "1234" {
			want = objects(t, strings.ReplaceAll(strings.ReplaceAll(base, "\""+namespace+"\"", namespace), namespace, `"1234"`))
		}
		if diff := cmp.Diff(want, objects(t, got)); diff != "" {
			t.Errorf("objects in namespace %s: -want +got\n%s", name, diff)
		}
	}
}

// Helm deletes no definition, because its objects would be deleted with it.
func TestDefinitionsAreKept(t *testing.T) {
	t.Parallel()
	for _, values := range []map[string]any{{}, {"placementAgent": true}} {
		text, err := helm(t, "template", "any", chart(t, "patchbay-crds"), "--values", valuesFile(t, values))
		if err != nil {
			t.Fatal(err)
		}
		found := objects(t, text)
		for name, o := range found {
			if field(t, o, "metadata", "annotations", "helm.sh/resource-policy") != "keep" {
				t.Errorf("%s must be kept", name)
			}
		}
		agents := slices.Collect(maps.Keys(found))
		agents = slices.DeleteFunc(agents, func(name string) bool { return !strings.Contains(name, "appliedworks") })
		if want := len(values); len(agents) != want {
			t.Errorf("with %v: got %v of the agent, want %d", values, agents, want)
		}
	}
}

// A value or a group of values that is empty in the user's file, such as after its last line was removed, changes
// nothing.
func TestEmptyValues(t *testing.T) {
	t.Parallel()
	want := mustRender(t, nil)
	for name, text := range map[string]string{
		"Features": "{features: }",
		"Parts":    "{parts: }",
		"Part":     "{parts: {node: , placementAgent: }}",
		"Values":   `{imagePullPolicy: "", logLevel: "", registry: "", version: "", defaultDelegate: ""}`,
		"OfPart":   `{parts: {node: {logLevel: "", cniBinDir: "", updateStrategy: {type: ""}}, controller: {logLevel: "", updateStrategy: {type: ""}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var values map[string]any
			if err := yaml.Unmarshal([]byte(text), &values); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, mustRender(t, values)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
