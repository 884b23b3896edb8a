// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Every field that a user writes must be bounded, so that its CEL rules are within the cost limit.
func TestEveryFieldIsBounded(t *testing.T) {
	t.Parallel()
	for _, d := range definitions(t) {
		for name, field := range d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties {
			if slices.Contains([]string{"ClusterNetwork", "TenantNetwork", "DanmNet"}, d.Spec.Names.Kind) && name == "spec" ||
				slices.Contains([]string{"hostDevices", "networkIds"}, name) {
				checkBounded(t, d.Spec.Names.Kind+"."+name, field)
			}
		}
	}
}

func checkBounded(t *testing.T, path string, f apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	switch f.Type {
	case "string":
		if f.MaxLength == nil {
			t.Errorf("%s has no maxLength", path)
		}
	case "integer":
		// The API server does not enforce the format int32, and programs could not decode larger numbers.
		if f.Maximum == nil || f.Minimum == nil {
			t.Errorf("%s has no maximum or no minimum", path)
		}
	case "array":
		if f.MaxItems == nil {
			t.Errorf("%s has no maxItems", path)
		}
		checkBounded(t, path+"[]", *f.Items.Schema)
	case "object":
		if f.AdditionalProperties != nil {
			if f.MaxProperties == nil {
				t.Errorf("%s has no maxProperties", path)
			}
			if f.XMapType == nil || *f.XMapType != "atomic" {
				t.Errorf("%s is not atomic: tracking the owner of each of 100,000 keys takes the API server longer than a request may", path)
			}
			checkBounded(t, path+"{}", *f.AdditionalProperties.Schema)
		}
	}
	for name, sub := range f.Properties {
		checkBounded(t, path+"."+name, sub)
	}
}

// A rule at the root would block the status writes of a stored object that violates it, and so every
// claim of an address.
func TestNoRuleAtTheRoot(t *testing.T) {
	t.Parallel()
	for _, d := range definitions(t) {
		root := d.Spec.Versions[0].Schema.OpenAPIV3Schema
		if len(root.XValidations) > 0 {
			t.Errorf("%s has rules at the root: %v", d.Name, root.XValidations)
		}
		status := root.Properties["status"]
		if len(status.XValidations) > 0 {
			t.Errorf("%s has rules on status: %v", d.Name, status.XValidations)
		}
	}
}

// All kinds have printer columns and a category. Kinds that request something have a status subresource,
// and networks and nodes have conditions: nothing is observed of a DanmEp, and of a TenantConfig only
// its reservations. A NetworkView and a DanmEp are observations as a whole.
func TestEveryKindHasStatusAndColumns(t *testing.T) {
	t.Parallel()
	for _, d := range definitions(t) {
		v := d.Spec.Versions[0]
		kind := d.Spec.Names.Kind
		observed := kind == "NetworkView" || kind == "DanmEp"
		if !observed && (v.Subresources == nil || v.Subresources.Status == nil) {
			t.Errorf("%s has no status subresource", d.Name)
		}
		if _, ok := v.Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"]; !ok && !observed && kind != "TenantConfig" {
			t.Errorf("%s has no conditions", d.Name)
		}
		if len(v.AdditionalPrinterColumns) < 1 {
			t.Errorf("%s has %d printer columns", d.Name, len(v.AdditionalPrinterColumns))
		}
		if !slices.Contains(d.Spec.Names.Categories, "danm") {
			t.Errorf("%s is not in the category danm", d.Name)
		}
	}
}

// Otherwise managedFields would list every page and every node of an address bitmap.
func TestBitmapIsAtomic(t *testing.T) {
	t.Parallel()
	for _, d := range definitions(t) {
		ipam, ok := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["ipam"]
		if !ok {
			continue
		}
		for name, f := range map[string]apiextensionsv1.JSONSchemaProps{
			"ipam": ipam, "held": ipam.Properties["held"], "v4.pages": ipam.Properties["v4"].Properties["pages"],
		} {
			if f.XMapType == nil || *f.XMapType != "atomic" {
				t.Errorf("%s: status %s is not atomic", d.Name, name)
			}
		}
	}
}
