// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// checkKeywords fails for a schema with a keyword that a CustomResourceDefinition does not have. The
// API server would ignore it, and kubectl reports it only at the time of the installation.
func checkKeywords(object map[string]any) error {
	known := keywords()
	var check func(s schema, path *field.Path) (schema, error)
	check = func(s schema, path *field.Path) (schema, error) {
		for _, keyword := range slices.Sorted(maps.Keys(s)) {
			if slices.Contains(known, keyword) {
				continue
			}
			suggestion := ""
			if near := text.Nearest(keyword, known); near != "" {
				suggestion = fmt.Sprintf(": did you mean %q?", near)
			}
			return nil, fmt.Errorf("%s: must be a keyword of a CustomResourceDefinition's schema%s", path.Child(keyword), suggestion)
		}
		return mapChildren(s, path, check)
	}
	_, err := mapVersions(object, check)
	return err
}

// keywords returns the JSON names of the fields of a schema, sorted, without those that the API server
// always rejects.
func keywords() []string {
	rejected := []string{"$ref", "$schema", "id", "definitions", "dependencies", "patternProperties", "additionalItems"}
	var names []string
	for f := range reflect.TypeFor[apiextensionsv1.JSONSchemaProps]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !slices.Contains(rejected, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
