// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// category is the kubectl category of all placement kinds.
const category = "patchbay-placement"

// All kinds are registered and have a status subresource with conditions, and columns for kubectl get. No
// CEL rule of a kind blocks a write of its status.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../deployments/placement/crds/placement.*.yaml")
	if err != nil || len(files) != 7 {
		t.Fatalf("find definitions: %v, %v", files, err)
	}
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &d); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, kind := range []string{d.Spec.Names.Kind, d.Spec.Names.ListKind} {
			if _, err := s.New(v1alpha1.SchemeGroupVersion().WithKind(kind)); err != nil {
				t.Errorf("make %s: %v", kind, err)
			}
		}
		v := d.Spec.Versions[0]
		root := v.Schema.OpenAPIV3Schema
		status := root.Properties["status"]
		if _, ok := status.Properties["conditions"]; !ok || v.Subresources == nil || v.Subresources.Status == nil {
			t.Errorf("%s has no status with conditions", d.Name)
		}
		if len(v.AdditionalPrinterColumns) < 2 || !slices.Equal(d.Spec.Names.Categories, []string{category}) {
			t.Errorf("%s: columns %v, categories %v", d.Name, v.AdditionalPrinterColumns, d.Spec.Names.Categories)
		}
		names := slices.Concat(d.Spec.Names.ShortNames, []string{d.Spec.Names.Singular, d.Spec.Names.Plural, strings.ToLower(d.Spec.Names.Kind)})
		if slices.Contains(names, category) { // kubectl would take the name for the category
			t.Errorf("%s: names %v, want none of them to be the category", d.Name, names)
		}
		if len(status.XValidations) > 0 {
			t.Errorf("%s has rules on its status", d.Name)
		}
		// Those of Clusters are about spec.declaredLost alone. Others could refuse the status of a stored object.
		if len(root.XValidations) > 0 && d.Spec.Names.Kind != "Cluster" {
			t.Errorf("%s has rules at the root", d.Name)
		}
	}
}
