// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"strings"
	"testing"
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
		"RootMetadata": {reason: "the metadata of the whole object can restrict names only", properties: "metadata: {type: object, nullable: true}", want: "properties[metadata]: Forbidden: must not specify anything other than name and generateName"},
		"Definitions":  {reason: "the keyword is not supported in schemas", properties: "a: {type: string, definitions: {b: {type: string}}}", want: "OpenAPIV3Schema 'definitions' is not supported"},
		"DefaultType":  {reason: "a default has the type of its field", properties: "a: {type: string, default: 5}", want: path + ".default: Invalid value: 5: "},
		"DefaultEnum":  {reason: "a default is a valid value", properties: "a: {type: string, enum: [b], default: c}", want: path + ".default: Invalid value: \"c\": "},
		"DefaultField": {reason: "a default has no field that would be pruned", properties: "a: {type: object, properties: {b: {type: string}}, default: {c: d}}", want: path + ".default: Invalid value: {\"c\":\"d\"}: must not have unknown fields"},
		"DefaultInItems": {
			reason: "the defaults of items are checked, too", properties: "a: {type: array, items: {type: object, properties: {b: {type: integer, default: x}}}}",
			want: path + ".items.properties[b].default",
		},
		"Key": {
			reason: "items without their key could not be told apart", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {b: {type: string}}}}",
			want: path + ".items.properties[b].default: Required value: must be set, or the property required",
		},
		"KeyRequired": {
			reason: "a key that is required is always there", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, required: [b], properties: {b: {type: string}}}}",
		},
		"KeyMissing": {
			reason: "a key is a property", properties: "a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {c: {type: string}}}}",
			want: path + ".items.properties[b]: Required value: must be a property",
		},
		"ListType": {reason: "only a list has items", properties: "a: {type: string, x-kubernetes-list-type: atomic}", want: path + ".x-kubernetes-list-type: Invalid value"},
		"KeyInMap": {
			reason: "lists in maps are checked, too", properties: "a: {type: object, additionalProperties: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {b: {type: string}}}}}",
			want: path + ".additionalProperties.items.properties[b].default",
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
			crd, err := Compile(newTestTemplate(t, tc.properties), definitions, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = Check(crd)
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
		"Type":    {reason: "a field has its type", change: func(spec map[string]any) { spec["group"] = true }, want: "must be a CustomResourceDefinition: json: cannot unmarshal bool"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := newTestTemplate(t, "a: {type: string}")
			spec, _ := template.Object["spec"].(map[string]any)
			tc.change(spec)
			crd, err := Compile(template, definitions, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(crd); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
