// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/json"
)

// Check validates the schemas of a CRD with the API server's code: that they are structural, and
// that their defaults are valid. It also checks the lists and their keys, by the rules of the API server.
// It does not compile the CEL rules of a template.
func Check(c *CRD) error {
	data, err := c.JSON()
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	strict, err := json.UnmarshalStrict(data, &crd)
	if err = cmp.Or(err, firstOf(strict)); err != nil {
		return fmt.Errorf("%s: must be a CustomResourceDefinition: %w", c.Source, err)
	}
	var problems field.ErrorList
	for i := range crd.Spec.Versions {
		path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		version := &crd.Spec.Versions[i]
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			problems = append(problems, field.Required(path, "must have a schema"))
			continue
		}
		problems = append(problems, checkSchema(version.Schema.OpenAPIV3Schema, path)...)
	}
	if err := problems.ToAggregate(); err != nil {
		return fmt.Errorf("%s: Kubernetes %s: %w", c.Source, c.Minor, err)
	}
	return nil
}

func firstOf(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

func checkSchema(typed *apiextensionsv1.JSONSchemaProps, path *field.Path) field.ErrorList {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(typed, &internal, nil); err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	if problems := structuralschema.ValidateStructural(path, structural); len(problems) > 0 {
		return problems
	}
	problems := checkDefaults(structural, path)
	return append(problems, checkLists(&internal, path)...)
}

// checkDefaults validates each default against its own schema.
func checkDefaults(s *structuralschema.Structural, path *field.Path) field.ErrorList {
	var problems field.ErrorList
	if value := s.Default.Object; value != nil {
		pruned := runtime.DeepCopyJSONValue(value)
		pruning.Prune(pruned, s, s.XEmbeddedResource)
		if !reflect.DeepEqual(pruned, value) {
			problems = append(problems, field.Invalid(path.Child("default"), value, "must not have unknown fields"))
		}
		result := validate.NewSchemaValidator(s.ToKubeOpenAPI(), nil, "", strfmt.Default).Validate(value)
		for _, err := range result.Errors {
			problems = append(problems, field.Invalid(path.Child("default"), value, err.Error()))
		}
	}
	if s.Items != nil {
		problems = append(problems, checkDefaults(s.Items, path.Child("items"))...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		problems = append(problems, checkDefaults(&property, path.Child("properties").Key(name))...)
	}
	return problems
}

// checkLists checks by which keys the items of lists differ: each key is always present, because it is
// required or has a default.
func checkLists(s *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	var problems field.ErrorList
	if s.XListType != nil && s.Type != "array" {
		problems = append(problems, field.Invalid(path.Child("x-kubernetes-list-type"), *s.XListType, "must be of a schema whose type is array"))
	}
	if s.Items != nil && s.Items.Schema != nil {
		items := s.Items.Schema
		problems = append(problems, checkListKeys(items, s.XListMapKeys, path.Child("items"))...)
		problems = append(problems, checkLists(items, path.Child("items"))...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		problems = append(problems, checkLists(s.AdditionalProperties.Schema, path.Child("additionalProperties"))...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		problems = append(problems, checkLists(&property, path.Child("properties").Key(name))...)
	}
	return problems
}

func checkListKeys(items *apiextensions.JSONSchemaProps, keys []string, path *field.Path) field.ErrorList {
	var problems field.ErrorList
	for _, key := range keys {
		below := path.Child("properties").Key(key)
		property, ok := items.Properties[key]
		switch {
		case !ok:
			problems = append(problems, field.Required(below, "must be a property, because x-kubernetes-list-map-keys names it"))
		case property.Default == nil && !slices.Contains(items.Required, key):
			problems = append(problems, field.Required(below.Child("default"), "must be set, or the property required, because x-kubernetes-list-map-keys names it"))
		}
	}
	return problems
}
