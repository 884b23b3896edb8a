// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A value of the wrong type is reported with its field, whether the schema sees it first, or the
// webhook, which sees a TenantNetwork before the schema does.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	env := start(t)
	ns := env.Namespace(t)
	for _, kind := range []string{v1.KindClusterNetwork, v1.KindTenantNetwork, v1.KindDanmNet, "TenantConfig"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tried := 0
			for _, f := range fieldsOf(t, env, kind) {
				for _, wrong := range wrongValues(f.kind) {
					o := object(t, kind, "", apitest.Name("wrong"), `{"spec": {"NetworkID": "n", "Options": {}}}`)
					switch kind {
					case v1.KindTenantNetwork, v1.KindDanmNet:
						o.SetNamespace(ns)
					case "TenantConfig":
						delete(o.Object, "spec")
					}
					if err := unstructured.SetNestedField(o.Object, wrong, f.path...); err != nil {
						t.Fatal(err)
					}
					err := env.Client.Create(t.Context(), o, client.DryRunAll)
					path := strings.Join(f.path, ".")
					if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "Go ") {
						t.Errorf("%s: %v: got %v, want 422 or 400 with the field", path, wrong, err)
					}
					tried++
				}
			}
			if tried == 0 {
				t.Error("no field was tried")
			}
		})
	}
}

// schemaField is a field of a definition, with its type.
type schemaField struct {
	path []string
	kind string
}

// fieldsOf returns the fields of a kind that a user writes, from its definition.
func fieldsOf(t *testing.T, env *apitest.Env, kind string) []schemaField {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := env.Client.Get(t.Context(), client.ObjectKey{Name: strings.ToLower(kind) + "s.danm.io"}, crd); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)
	root, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties")
	if err != nil {
		t.Fatal(err)
	}
	var found []schemaField
	var walk func(path []string, properties map[string]any)
	walk = func(path []string, properties map[string]any) {
		for name, p := range properties {
			property, _ := p.(map[string]any)
			own := append(append([]string(nil), path...), name)
			found = append(found, schemaField{own, fmt.Sprint(property["type"])})
			below, _ := property["properties"].(map[string]any)
			walk(own, below)
		}
	}
	for _, name := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(root, name)
	}
	walk(nil, root)
	return found
}

// wrongValues returns values of other types than the field's; a number may also be too large for
// it.
func wrongValues(kind string) []any {
	values := map[string]any{
		"string": "x", "integer": int64(7), "boolean": true,
		"array": []any{"x"}, "object": map[string]any{"x": "y"},
	}
	delete(values, kind)
	list := []any{}
	for _, v := range values {
		list = append(list, v)
	}
	if kind == "integer" {
		list = append(list, int64(1)<<40, int64(-1)<<40, 1.5)
	}
	return list
}
