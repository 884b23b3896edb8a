// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

// maxSize is 60,000 bytes below the limit of the annotation in which kubectl apply stores an object as compact
// JSON, so that overlays and later fields have room.
const maxSize = 262_144 - 60_000

func readDefinition(t *testing.T) (data []byte, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	data, err := os.ReadFile("../../../deployments/operator/crds/operator.patchbay.io_installations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d = &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, d); err != nil {
		t.Fatal(err)
	}
	return data, d
}

func TestSize(t *testing.T) {
	t.Parallel()
	data, _ := readDefinition(t)
	compact, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(compact) > maxSize {
		t.Errorf("the definition has %d bytes as compact JSON, want at most %d", len(compact), maxSize)
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	_, d := readDefinition(t)
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{d.Spec.Names.Kind, d.Spec.Names.ListKind} {
		if _, err := s.New(v1alpha1.SchemeGroupVersion().WithKind(kind)); err != nil {
			t.Errorf("make %s: %v", kind, err)
		}
	}
	if d.Spec.Scope != apiextensionsv1.ClusterScoped {
		t.Errorf("scope %s, want Cluster", d.Spec.Scope)
	}
	status := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	if _, ok := status.Properties["conditions"]; !ok || d.Spec.Versions[0].Subresources.Status == nil {
		t.Error("there is no status with conditions")
	}
}

// A template is a patch: only the keys by which lists merge are required, because Kubernetes' own code
// merges by them. Directives are part of the schema: the API server removes what is not.
func TestTemplatesArePatches(t *testing.T) {
	t.Parallel()
	_, d := readDefinition(t)
	parts := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["parts"].Properties
	if len(parts) != 3 {
		t.Fatalf("got %d parts, want 3", len(parts))
	}
	for name, part := range parts {
		template := part.Properties["template"]
		if objects := checkPatch(t, name+".template", template, nil); objects < 200 {
			t.Errorf("%s: got %d objects with fields, want all of a PodTemplateSpec", name, objects)
		}
		if template.Description == "" || template.Properties["spec"].Description != "" {
			t.Errorf("%s: want our own description and none of Kubernetes'", name)
		}
		if _, ok := template.Properties["metadata"].Properties["annotations"]; !ok {
			t.Errorf("%s: without a schema of the metadata, annotations are removed", name)
		}
		if _, ok := template.Properties["spec"].Properties["volumes"].Items.Schema.Properties["$retainKeys"]; !ok {
			t.Errorf("%s: a volume cannot get another source without $retainKeys", name)
		}
	}
}

// checkPatch returns how many objects with fields there are.
func checkPatch(t *testing.T, path string, s apiextensionsv1.JSONSchemaProps, keys []string) int {
	t.Helper()
	for _, required := range s.Required {
		if !slices.Contains(keys, required) {
			t.Errorf("%s requires %s, which a patch may leave out", path, required)
		}
	}
	objects := 0
	if len(s.Properties) > 0 {
		objects++
		if _, ok := s.Properties["$patch"]; !ok {
			t.Errorf("%s has no $patch", path)
		}
	}
	for name, below := range s.Properties {
		objects += checkPatch(t, path+"."+name, below, nil)
	}
	if s.Items != nil && s.Items.Schema != nil {
		objects += checkPatch(t, path+"[]", *s.Items.Schema, s.XListMapKeys)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		objects += checkPatch(t, path+"{}", *s.AdditionalProperties.Schema, nil)
	}
	return objects
}

// A template must pass through the Go type as it was written, because a typed one would add fields such as
// `containers: null`, which removes all containers, and drop directives.
func TestTemplateIsKept(t *testing.T) {
	t.Parallel()
	const text = `{"spec":{"parts":{"node":{"template":{"spec":{"containers":[{"$patch":"delete","name":"x"}]}},"updateStrategy":{}}}}}`
	var i v1alpha1.Installation
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		t.Fatal(err)
	}
	if got, want := string(i.Spec.Parts.Node.Template.Raw), `{"spec":{"containers":[{"$patch":"delete","name":"x"}]}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
