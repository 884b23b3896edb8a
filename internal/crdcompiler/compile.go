// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Compile returns the CustomResourceDefinition that a template describes, with Kubernetes' types as
// they are in the definitions.
func Compile(ctx context.Context, t *Template, d *Definitions, o Options) (*CRD, error) {
	object, err := resolve(ctx, t, d, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	name := t.Name
	if t.Patch != nil {
		if object, name, err = applyPatch(object, t.Patch); err != nil {
			return nil, fmt.Errorf("%s: %w", t.PatchFile, err)
		}
	}
	if err := checkKeywords(object); err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	return &CRD{Name: name, Minor: d.Minor, Source: t.File, Object: object}, nil
}

// resolve returns the template's object with schemas that have no references.
func resolve(ctx context.Context, t *Template, d *Definitions, o Options) (map[string]any, error) {
	files, err := newDocuments(t, o.Maps)
	if err != nil {
		return nil, err
	}
	defer files.close()
	r := &resolver{documents: files, definitions: d, options: o, budget: maxBytes}
	return mapVersions(t.Object, func(root schema, path *field.Path) (schema, error) {
		root, err := r.resolve(ctx, root, files.template(), path, nil)
		if err != nil {
			return nil, err
		}
		objectMeta, err := r.follow(ctx, objectMetaName, files.template(), path, nil)
		if err != nil {
			return nil, err
		}
		return adaptRoot(root, objectMeta, path)
	})
}

// mapVersions returns an object whose versions have the schemas that change returns.
func mapVersions(object map[string]any, change func(schema, *field.Path) (schema, error)) (map[string]any, error) {
	out := map[string]any{}
	for _, key := range []string{"apiVersion", "kind", "metadata", "spec"} {
		if value, ok := object[key]; ok {
			out[key] = value
		}
	}
	path := field.NewPath("spec")
	spec, err := asObject(object["spec"], path)
	if err != nil {
		return nil, err
	}
	path = path.Child("versions")
	versions, ok := spec["versions"].([]any)
	if !ok || len(versions) == 0 {
		return nil, fmt.Errorf("%s: must be a list with a version and its schema", path)
	}
	changed := make([]any, len(versions))
	for i := range versions {
		if changed[i], err = mapVersion(versions[i], path.Index(i), change); err != nil {
			return nil, err
		}
	}
	out["spec"] = withKey(spec, "versions", changed)
	return out, nil
}

func mapVersion(value any, path *field.Path, change func(schema, *field.Path) (schema, error)) (map[string]any, error) {
	version, err := asObject(value, path)
	if err != nil {
		return nil, err
	}
	path = path.Child("schema")
	validation, err := asObject(version["schema"], path)
	if err != nil {
		return nil, err
	}
	path = path.Child("openAPIV3Schema")
	root, err := asObject(validation["openAPIV3Schema"], path)
	if err != nil {
		return nil, err
	}
	if root, err = change(root, path); err != nil {
		return nil, err
	}
	return withKey(version, "schema", withKey(validation, "openAPIV3Schema", root)), nil
}
