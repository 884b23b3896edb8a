// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// definitions reads the generated CustomResourceDefinitions.
func definitions(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../../deployments/crds/danm.io_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("find definitions: %v, %v", files, err)
	}
	var crds []apiextensionsv1.CustomResourceDefinition
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &d); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		crds = append(crds, d)
	}
	return crds
}

// docs/api.md must name every field that users write.
func TestReferenceNamesEveryField(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions(t) {
		if !strings.Contains(string(text), "`"+d.Spec.Names.Kind+"`") {
			t.Errorf("docs/api.md has no `%s`", d.Spec.Names.Kind)
		}
		if kind := d.Spec.Names.Kind; kind == "DanmEp" || kind == "NodeNetwork" {
			continue // only programs write those
		}
		schema := d.Spec.Versions[0].Schema.OpenAPIV3Schema
		for name, field := range schema.Properties {
			switch name {
			case "apiVersion", "kind", "metadata", "status", "namespaceSelector":
			default:
				checkNamed(t, string(text), name, field)
			}
		}
	}
}

func checkNamed(t *testing.T, text, name string, field apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if !strings.Contains(text, name) {
		t.Errorf("docs/api.md does not name %s", name)
	}
	for sub, f := range field.Properties {
		checkNamed(t, text, sub, f)
	}
	if field.Items != nil {
		for sub, f := range field.Items.Schema.Properties {
			checkNamed(t, text, sub, f)
		}
	}
}
