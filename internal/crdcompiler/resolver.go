// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSchemas bounds how many schemas a template may have after its references are resolved. A Pod
// template has about two thousand, and an API server accepts no object of more than 3 MB.
const maxSchemas = 200_000

// resolver replaces the references of one template by what they refer to.
type resolver struct {
	documents   *documents
	definitions *Definitions
	options     Options
	// budget is how many schemas may still be added.
	budget int
}

// ancestor is a reference that is being resolved.
type ancestor struct {
	target string
	above  *ancestor
}

// resolve returns a schema without references.
func (r *resolver) resolve(s schema, at location, path *field.Path, above *ancestor) (schema, error) {
	if r.budget--; r.budget < 0 {
		return nil, fmt.Errorf("%s: must have at most %d schemas after its references are resolved", path, maxSchemas)
	}
	parts, own, err := r.resolveReferences(s, at, path, above)
	if err != nil {
		return nil, err
	}
	own, err = mapChildren(own, path, func(child schema, path *field.Path) (schema, error) {
		return r.resolve(child, at, path, above)
	})
	if err != nil {
		return nil, err
	}
	out := schema{}
	for _, part := range append(parts, own) {
		out = merge(out, part)
	}
	return out, nil
}

// resolveReferences returns what a schema refers to, and the schema without its references. A reference in a
// list allOf, which is how OpenAPI 3.0 gives a reference a description, is one of the schema itself: a
// structural schema has no types within allOf.
func (r *resolver) resolveReferences(s schema, at location, path *field.Path, above *ancestor) (parts []schema, own schema, err error) {
	own = s
	if text, ok := s["$ref"]; ok {
		own = withoutKey(own, "$ref")
		part, err := r.follow(text, at, path.Child("$ref"), above)
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, part)
	}
	all, ok := s["allOf"].([]any)
	if !ok {
		return parts, own, nil
	}
	var rest []any
	for i, element := range all {
		e, _ := element.(schema)
		if _, ok := e["$ref"]; !ok {
			rest = append(rest, element)
			continue
		}
		part, err := r.resolve(e, at, path.Child("allOf").Index(i), above)
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, part)
	}
	own = withoutKey(own, "allOf")
	if len(rest) > 0 {
		own = withKey(own, "allOf", rest)
	}
	return parts, own, nil
}

// withoutKey returns a copy of a schema without a keyword.
func withoutKey(s schema, key string) schema {
	out := withKey(s, key, nil)
	delete(out, key)
	return out
}

// follow returns what a reference refers to, without references.
func (r *resolver) follow(value any, at location, path *field.Path, above *ancestor) (schema, error) {
	text, ok := value.(string)
	if !ok {
		return nil, fmt.Errorf("%s: must be a string: got %s", path, kindOf(value))
	}
	target, to, err := r.find(text, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for a := above; a != nil; a = a.above {
		if a.target == to.id {
			return r.cutOrRefuse(target, to.id, path, above)
		}
	}
	out, err := r.resolve(target, to, path, &ancestor{target: to.id, above: above})
	if err != nil {
		return nil, err
	}
	if to.kubernetes && !at.kubernetes {
		out = adapt(out, r.options.MaxDescription)
	}
	return out, nil
}

// find returns the schema that a reference in a place names, and the place of that schema.
func (r *resolver) find(text string, at location) (schema, location, error) {
	ref, err := parseReference(text, at.kubernetes)
	if err != nil {
		return nil, location{}, err
	}
	if ref.definition != "" {
		target, err := r.definitions.find(ref.definition)
		return target, location{kubernetes: true, id: ref.definition}, err
	}
	return r.documents.find(ref, at)
}

// cutOrRefuse returns what stands for a type within itself.
func (r *resolver) cutOrRefuse(target schema, id string, path *field.Path, above *ancestor) (schema, error) {
	if !r.options.CutRecursion {
		cycle := []string{id}
		for a := above; a != nil; a = a.above {
			cycle = append(cycle, a.target)
			if a.target == id {
				break
			}
		}
		slices.Reverse(cycle)
		return nil, fmt.Errorf("%s: must not contain itself (%s), because a CustomResourceDefinition is finite: use --recursive-types=cut to accept any value there",
			path, strings.Join(cycle, " -> "))
	}
	out := schema{"x-kubernetes-preserve-unknown-fields": true}
	if kind, ok := target["type"]; ok {
		out["type"] = kind
	}
	if kind := out["type"]; kind == "array" {
		out["items"] = schema{"x-kubernetes-preserve-unknown-fields": true}
		delete(out, "x-kubernetes-preserve-unknown-fields")
	}
	return out, nil
}
