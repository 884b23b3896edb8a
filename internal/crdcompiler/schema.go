// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// schema is a JSON schema as it is in a file: a schema of Kubernetes' Go types would lose which
// keywords are present.
type schema = map[string]any

// mapChildren returns a copy of a schema in which each schema directly below is the one that change
// returns. Values such as defaults are no schemas, and a property may have the name of a keyword.
func mapChildren(s schema, path *field.Path, change func(schema, *field.Path) (schema, error)) (schema, error) {
	out := maps.Clone(s)
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		var err error
		below := path.Child(keyword)
		switch keyword {
		case "properties", "patternProperties":
			out[keyword], err = mapProperties(s[keyword], below, change)
		case "items", "not":
			out[keyword], err = mapSchema(s[keyword], below, change)
		case "additionalProperties":
			if _, ok := s[keyword].(bool); !ok {
				out[keyword], err = mapSchema(s[keyword], below, change)
			}
		case "allOf", "anyOf", "oneOf":
			out[keyword], err = mapList(s[keyword], below, change)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func mapProperties(value any, path *field.Path, change func(schema, *field.Path) (schema, error)) (any, error) {
	properties, err := asObject(value, path)
	if err != nil {
		return nil, err
	}
	out := make(map[string]any, len(properties))
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if out[name], err = mapSchema(properties[name], path.Key(name), change); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func mapList(value any, path *field.Path, change func(schema, *field.Path) (schema, error)) (any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: must be a list of schemas: got %s", path, kindOf(value))
	}
	out := make([]any, len(list))
	for i := range list {
		var err error
		if out[i], err = mapSchema(list[i], path.Index(i), change); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func mapSchema(value any, path *field.Path, change func(schema, *field.Path) (schema, error)) (any, error) {
	s, err := asObject(value, path)
	if err != nil {
		return nil, err
	}
	return change(s, path)
}

// asObject returns a value that must be an object.
func asObject(value any, path *field.Path) (map[string]any, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: must be an object: got %s", path, kindOf(value))
	}
	return object, nil
}

// kindOf names the type of a JSON value.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}

// withKey returns a copy of an object with another value for a key.
func withKey(object map[string]any, key string, value any) map[string]any {
	out := maps.Clone(object)
	out[key] = value
	return out
}

// merge returns a schema with the keywords of two. What stands beside a reference wins over what it
// refers to, but adds to its required properties and its rules, and changes its properties one by one.
func merge(target, beside schema) schema {
	out := maps.Clone(target)
	for keyword, value := range beside {
		was, both := out[keyword]
		if !both {
			out[keyword] = value
			continue
		}
		out[keyword] = mergeKeyword(keyword, was, value)
	}
	return out
}

func mergeKeyword(keyword string, was, value any) any {
	switch keyword {
	case "required":
		return union(was, value)
	case "x-kubernetes-validations", "allOf":
		first, _ := was.([]any)
		second, _ := value.([]any)
		return slices.Concat(first, second)
	case "items", "additionalProperties":
		return mergeValue(was, value)
	case "properties":
		first, _ := was.(map[string]any)
		second, _ := value.(map[string]any)
		out := maps.Clone(first)
		for name, property := range second {
			out[name] = property
			if earlier, ok := first[name]; ok {
				out[name] = mergeValue(earlier, property)
			}
		}
		return out
	default:
		return value
	}
}

// mergeValue merges two schemas; a boolean of additionalProperties wins.
func mergeValue(was, value any) any {
	first, ok1 := was.(schema)
	second, ok2 := value.(schema)
	if !ok1 || !ok2 {
		return value
	}
	return merge(first, second)
}

// union returns the names of both lists, each once.
func union(was, value any) any {
	first, _ := was.([]any)
	second, _ := value.([]any)
	out := slices.Clone(first)
	for _, name := range second {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// truncate returns a text of at most limit characters.
func truncate(text string, limit int) string {
	characters := []rune(text)
	if len(characters) <= limit {
		return text
	}
	return strings.TrimRight(string(characters[:limit-1]), " \n") + "…"
}
