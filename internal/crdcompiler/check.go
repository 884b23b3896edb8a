// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
)

// Check validates a CRD with the code with which the API server validates one that is created: names,
// versions, schemas, defaults, lists, CEL rules and their costs. The code is that of the Kubernetes
// libraries that Patchbay uses, whatever the minor of the CRD's types.
func Check(ctx context.Context, c *CRD) error {
	data, err := c.JSON()
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	strict, err := json.UnmarshalStrict(data, &crd)
	if err = cmp.Or(err, firstOf(strict)); err != nil {
		return fmt.Errorf("%s: must be a CustomResourceDefinition: %w", c.Source, err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
		return fmt.Errorf("%s: must be a CustomResourceDefinition: %w", c.Source, err)
	}
	problems := validation.ValidateCustomResourceDefinition(ctx, &internal)
	// The validation ignores the end of its context at most places.
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, problem := range problems {
		problem.Field = servedPath(problem.Field)
		problem.BadValue = shortValue(problem.BadValue)
	}
	// The validation reads properties in an arbitrary order.
	slices.SortFunc(problems, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := problems.ToAggregate(); err != nil {
		return fmt.Errorf("%s: %w", c.Source, err)
	}
	return nil
}

func firstOf(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// servedPath returns the path that a field has in apiextensions.k8s.io/v1. The API server's internal
// type has what all versions have in common once, beside the versions.
func servedPath(path string) string {
	const version = "spec.versions[0]."
	if below, ok := strings.CutPrefix(path, "spec.validation."); ok {
		return version + "schema." + below
	}
	for _, name := range []string{"subresources", "additionalPrinterColumns", "selectableFields"} {
		if strings.HasPrefix(path, "spec."+name) {
			return version + strings.TrimPrefix(path, "spec.")
		}
	}
	return path
}

// shortValue leaves out a value that is in the form of the API server's internal types. It may be all
// versions of a CRD.
func shortValue(value any) any {
	kind := reflect.TypeOf(value)
	for kind != nil && (kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice) {
		kind = kind.Elem()
	}
	if kind != nil && kind.Kind() == reflect.Struct {
		return field.OmitValueType{}
	}
	return value
}
