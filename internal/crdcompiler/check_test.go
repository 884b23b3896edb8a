// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const path = "spec.versions[0].schema.openAPIV3Schema.properties[a]"
	cases := map[string]struct{ reason, properties, want string }{
		"Valid":        {reason: "a schema without mistakes", properties: "a: {type: string, default: b}"},
		"NoType":       {reason: "each field of a structural schema has a type", properties: "a: {minLength: 1}", want: path + ".type: Required value: must not be empty for specified object fields"},
		"TypeInAnyOf":  {reason: "a structural schema has no types in anyOf", properties: "a: {type: string, anyOf: [{type: string}]}", want: path + ".anyOf[0].type: Forbidden: must be empty to be structural"},
		"NoItems":      {reason: "an array has items", properties: "a: {type: array}", want: path + ".items: Required value"},
		"Pattern":      {reason: "a pattern is a regular expression", properties: "a: {type: string, pattern: '['}", want: path + ".pattern: Invalid value"},
		"DefaultType":  {reason: "a default has the type of its field", properties: "a: {type: string, default: 5}", want: path + ".default: Invalid value: \"integer\":  in body must be of type string"},
		"DefaultEnum":  {reason: "a default is a valid value", properties: "a: {type: string, enum: [b], default: c}", want: path + ".default: Unsupported value: \"c\": "},
		"DefaultField": {reason: "a default has no field that would be pruned", properties: "a: {type: object, properties: {b: {type: string}}, default: {c: d}}", want: path + ".default: Invalid value: {\"c\":\"d\"}: must not have unknown fields"},
		"DefaultInItems": {
			reason: "the defaults of items are checked, too", properties: "a: {type: array, items: {type: object, properties: {b: {type: integer, default: x}}}}",
			want: path + ".items.properties[b].default",
		},
		"Key": {
			reason: "items without their key could not be told apart", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {b: {type: string}}}}",
			want: path + ".items.properties[b].default: Required value: this property is in x-kubernetes-list-map-keys",
		},
		"KeyRequired": {
			reason: "a key that is required is always there", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, required: [b], properties: {b: {type: string}}}}",
		},
		"KeyMissing": {
			reason: "a key is a property", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {c: {type: string}}}}",
			want: path + ".x-kubernetes-list-map-keys: Invalid value: [\"b\"]: entries must all be names of item properties",
		},
		"ListType": {reason: "only a list has items", properties: "a: {type: string, x-kubernetes-list-type: atomic}", want: path + ".type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified"},
		"KeyInMap": {
			reason: "lists in maps are checked, too", properties: "a: {type: object, additionalProperties: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {b: {type: string}}}}}",
			want: path + ".additionalProperties.items.properties[b].default",
		},
		"ListTypeUnknown": {reason: "a list has one of three types", properties: "a: {type: array, x-kubernetes-list-type: foo, items: {type: string}}", want: path + `.x-kubernetes-list-type: Unsupported value: "foo"`},
		"MapTypeUnknown":  {reason: "an object has one of two types", properties: "a: {type: object, x-kubernetes-map-type: foo}", want: path + `.x-kubernetes-map-type: Unsupported value: "foo"`},
		"NoKeys":          {reason: "the items of a map need keys", properties: "a: {type: array, x-kubernetes-list-type: map, items: {type: object, properties: {b: {type: string}}}}", want: path + ".x-kubernetes-list-map-keys: Required value"},
		"KeysOfNoMap":     {reason: "only a map has keys", properties: "a: {type: array, x-kubernetes-list-map-keys: [b], items: {type: object, required: [b], properties: {b: {type: string}}}}", want: path + ".x-kubernetes-list-type: Required value"},
		"KeyTwice":        {reason: "a key that is there twice is a mistake", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b, b], items: {type: object, required: [b], properties: {b: {type: string}}}}", want: path + `.x-kubernetes-list-map-keys: Invalid value: ["b","b"]: must not contain duplicate entries`},
		"KeyIsObject":     {reason: "a key is one value", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, required: [b], properties: {b: {type: object}}}}", want: path + ".items.properties[b].type: Invalid value: "},
		"SetOfObjects":    {reason: "the objects of a set are compared as a whole", properties: "a: {type: array, x-kubernetes-list-type: set, items: {type: object}}", want: path + ".items.x-kubernetes-map-type: Invalid value"},
		"UniqueItems":     {reason: "the comparison of all items would be too slow", properties: "a: {type: array, uniqueItems: true, items: {type: string}}", want: path + ".uniqueItems: Forbidden: uniqueItems cannot be set to true"},
		"PropertiesOfMap": {reason: "an object has fields or is a map", properties: "a: {type: object, properties: {b: {type: string}}, additionalProperties: {type: string}}", want: path + ".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"},
		"Rule":            {reason: "rules are compiled", properties: "a: {type: string, x-kubernetes-validations: [{rule: self.b == 1}]}", want: path + ".x-kubernetes-validations[0].rule: Invalid value: compilation failed: "},
		"CostOfRule": {
			reason: "a rule has a bounded cost", properties: "a: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: 'self.all(x, self.all(y, x == y || x.matches(y)))'}]}",
			want: path + ".x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget",
		},
		"Value": {reason: "keywords have values of their types", properties: "a: {type: string, minLength: x}", want: "must be a CustomResourceDefinition: json: cannot unmarshal"},
	}
	definitions, err := readOpenAPI(t).Of("1.35")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd, err := Compile(t.Context(), newTestTemplate(t, tc.properties), definitions, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = Check(t.Context(), crd)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// The fields beside the schemas are those of a CustomResourceDefinition.
func TestCheckFields(t *testing.T) {
	t.Parallel()
	definitions, err := readOpenAPI(t).Of("1.35")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(spec map[string]any)
		want   string
	}{
		"Unknown": {reason: "a typing error is found", change: func(spec map[string]any) { spec["scop"] = "Cluster" }, want: `unknown field "spec.scop"`},
		"Plural":  {reason: "the name consists of plural and group", change: func(spec map[string]any) { spec["group"] = "other.example.com" }, want: `metadata.name: Invalid value: "things.example.com": must be spec.names.plural+"."+spec.group`},
		"Column": {
			reason: "the path of a column is a JSON path",
			change: func(spec map[string]any) {
				versionOf(spec)["additionalPrinterColumns"] = []any{map[string]any{"name": "A", "type": "string", "jsonPath": "spec.a"}}
			},
			want: `spec.versions[0].additionalPrinterColumns[0].JSONPath: Invalid value: "spec.a"`,
		},
		"Subresource": {
			reason: "the path of replicas is below spec",
			change: func(spec map[string]any) {
				versionOf(spec)["subresources"] = map[string]any{"scale": map[string]any{"specReplicasPath": ".a", "statusReplicasPath": ".status.a"}}
			},
			want: `spec.versions[0].subresources.scale.specReplicasPath: Invalid value: ".a"`,
		},
		"NoStorage": {reason: "one version is stored, and the message does not have the whole schema", change: func(spec map[string]any) { versionOf(spec)["storage"] = false }, want: "spec.versions: Invalid value: must have exactly one version marked as storage version"},
		"Type":      {reason: "a field has its type", change: func(spec map[string]any) { spec["group"] = true }, want: "must be a CustomResourceDefinition: json: cannot unmarshal bool"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := newTestTemplate(t, "a: {type: string}")
			spec, _ := template.Object["spec"].(map[string]any)
			tc.change(spec)
			crd, err := Compile(t.Context(), template, definitions, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(t.Context(), crd); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// versionOf returns the first version of a template's spec, which the test may change.
func versionOf(spec map[string]any) map[string]any {
	versions, _ := spec["versions"].([]any)
	version, _ := versions[0].(map[string]any)
	return version
}

// Our own CRDs pass the check, too.
func TestCheckOwnCRDs(t *testing.T) {
	t.Parallel()
	folder, err := source.Path("deployments")
	if err != nil {
		t.Fatal(err)
	}
	var crds []*CRD
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Base(filepath.Dir(file)) != "crds" || entry.Name() == "kustomization.yaml" {
			return err
		}
		templates, err := ReadTemplates(file)
		for _, template := range templates {
			crds = append(crds, &CRD{Name: template.Name, Source: file, Object: template.Object})
		}
		return err
	})
	if err != nil || len(crds) < 14 {
		t.Fatalf("got %d CRDs, %v", len(crds), err)
	}
	for _, crd := range crds {
		t.Run(crd.Name, func(t *testing.T) {
			t.Parallel()
			if err := Check(t.Context(), crd); err != nil {
				t.Error(err)
			}
		})
	}
}

// A check ends with its context.
func TestCheckIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Check(ctx, &CRD{Object: newTestTemplate(t, "a: {type: string}").Object}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context has ended", err)
	}
}
