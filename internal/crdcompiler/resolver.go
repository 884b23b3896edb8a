// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxBytes bounds the JSON of a template's schemas after their references are resolved: an API server
	// accepts no request of more than 3 MB.
	maxBytes = 3_000_000
	// maxReferences bounds how many references are in the target of another.
	maxReferences = 200
)

// resolver replaces the references of one template by what they refer to.
type resolver struct {
	documents   *documents
	definitions *Definitions
	options     Options
	// budget is how many bytes of JSON may still be added.
	budget int
}

// ancestor is a reference that is being resolved.
type ancestor struct {
	target string
	above  *ancestor
	// depth is the number of ancestors, with this one.
	depth int
}

func newAncestor(target string, above *ancestor) *ancestor {
	depth := 1
	if above != nil {
		depth += above.depth
	}
	return &ancestor{target: target, above: above, depth: depth}
}

// resolve returns a schema without references.
func (r *resolver) resolve(ctx context.Context, s schema, at location, path *field.Path, above *ancestor) (schema, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.budget -= r.sizeOf(s, at); r.budget < 0 {
		return nil, fmt.Errorf("%s: must have at most %d bytes as JSON after its references are resolved", path, maxBytes)
	}
	parts, own, err := r.resolveReferences(ctx, s, at, path, above)
	if err != nil {
		return nil, err
	}
	own, err = mapChildren(own, path, func(child schema, path *field.Path) (schema, error) {
		return r.resolve(ctx, child, at, path, above)
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

// sizeOf returns about how many bytes of JSON a schema adds, without the schemas below it. An empty one
// counts, too.
func (r *resolver) sizeOf(s schema, at location) int {
	const empty = len(`"name":{},`)
	size := empty
	for keyword, value := range s {
		limit := r.options.MaxDescription
		if text, ok := value.(string); ok && keyword == "description" && at.kubernetes && limit >= 0 {
			value = text[:min(len(text), limit)] // adapt removes the rest
		}
		size += sizeOfKeyword(keyword, value)
	}
	return size
}

func sizeOfKeyword(keyword string, value any) int {
	size := len(keyword) + len(`"":,`)
	switch keyword {
	case "definitions", "items", "not", "additionalProperties", "allOf", "anyOf", "oneOf":
	case "properties", "patternProperties":
		properties, _ := value.(map[string]any)
		for name := range properties {
			size += len(name)
		}
	default:
		size += sizeOfValue(value)
	}
	return size
}

// sizeOfValue returns about how many bytes of JSON a value has.
func sizeOfValue(value any) int {
	const separator = len(`"":,`)
	switch v := value.(type) {
	case string:
		return len(v) + len(`""`)
	case map[string]any:
		size := len("{}")
		for key, element := range v {
			size += len(key) + separator + sizeOfValue(element)
		}
		return size
	case []any:
		size := len("[]")
		for _, element := range v {
			size += len(",") + sizeOfValue(element)
		}
		return size
	default:
		return len("false")
	}
}

// resolveReferences returns what a schema refers to, and the schema without its references. A reference in a
// list allOf, which is how OpenAPI 3.0 gives a reference a description, is one of the schema itself: a
// structural schema has no types within allOf.
func (r *resolver) resolveReferences(ctx context.Context, s schema, at location, path *field.Path, above *ancestor) (parts []schema, own schema, err error) {
	own = withoutKey(s, "definitions") // they are for the references
	if text, ok := s["$ref"]; ok {
		own = withoutKey(own, "$ref")
		part, err := r.follow(ctx, text, at, path.Child("$ref"), above)
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
		part, err := r.resolve(ctx, e, at, path.Child("allOf").Index(i), above)
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
func (r *resolver) follow(ctx context.Context, value any, at location, path *field.Path, above *ancestor) (schema, error) {
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
	inner := newAncestor(to.id, above)
	if inner.depth > maxReferences {
		return nil, fmt.Errorf("%s: must have at most %d references of which each is in the target of another", path, maxReferences)
	}
	out, err := r.resolve(ctx, target, to, path, inner)
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
