// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// quantityPattern is what Kubernetes accepts as a quantity that is a string.
const quantityPattern = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// adaptedDefinitions are the definitions that OpenAPI cannot describe as Kubernetes reads them.
func adaptedDefinitions() map[string]schema {
	const machinery = "io.k8s.apimachinery.pkg."
	// Kubernetes' own clients write a time that is not set as null.
	time := schema{"type": "string", "format": "date-time", "nullable": true}
	return map[string]schema{
		machinery + "util.intstr.IntOrString": {"x-kubernetes-int-or-string": true},
		machinery + "api.resource.Quantity":   {"x-kubernetes-int-or-string": true, "pattern": quantityPattern},
		machinery + "apis.meta.v1.Time":       time,
		machinery + "apis.meta.v1.MicroTime":  time,
	}
}

// adapt changes a definition of Kubernetes that has no references to what a CustomResourceDefinition
// may have, so that the API server keeps whatever Kubernetes accepts.
func adapt(s schema, maxDescription int) schema {
	return adaptKeeping(s, nil, maxDescription)
}

// adaptKeeping is adapt for the items of a list, whose keys keep their defaults. All other defaults
// are left out: Kubernetes sets them itself, in the objects that an operator creates.
func adaptKeeping(s schema, keys []any, maxDescription int) schema {
	out := maps.Clone(s)
	delete(out, "default")
	shortenDescription(out, maxDescription)
	if properties, ok := s["properties"].(map[string]any); ok {
		adapted := make(map[string]any, len(properties))
		for name, value := range properties {
			property, _ := value.(schema)
			adapted[name] = adapt(property, maxDescription)
			if fallback, ok := property["default"]; ok && slices.Contains(keys, any(name)) {
				adapted[name] = withKey(adapt(property, maxDescription), "default", fallback)
			}
		}
		out["properties"] = adapted
	}
	if more, ok := s["additionalProperties"].(schema); ok {
		out["additionalProperties"] = adapt(more, maxDescription)
	}
	if items, ok := s["items"].(schema); ok {
		listKeys := keysOf(out, items)
		out["items"] = adaptKeeping(items, listKeys, maxDescription)
	} else {
		delete(out, "x-kubernetes-list-type") // of bytes, which are a list in Go and a text in JSON
	}
	if isOpaque(out) {
		out["x-kubernetes-preserve-unknown-fields"] = true
	}
	return out
}

func shortenDescription(s schema, limit int) {
	description, ok := s["description"].(string)
	switch {
	case !ok || limit < 0:
	case limit == 0:
		delete(s, "description")
	default:
		s["description"] = truncate(description, limit)
	}
}

// keysOf returns the keys by which the items of a list differ and that need not be set. The API
// server requires a default for these. A list with a key that has none becomes atomic.
func keysOf(list, items schema) []any {
	properties, _ := items["properties"].(map[string]any)
	required, _ := items["required"].([]any)
	var optional []any
	keys, _ := list["x-kubernetes-list-map-keys"].([]any)
	for _, key := range keys {
		if slices.Contains(required, key) {
			continue
		}
		name, _ := key.(string)
		property, _ := properties[name].(schema)
		if _, ok := property["default"]; !ok {
			list["x-kubernetes-list-type"] = "atomic"
			delete(list, "x-kubernetes-list-map-keys")
			return nil
		}
		optional = append(optional, key)
	}
	return optional
}

// isOpaque tells whether a schema does not describe the value, so that the API server would remove
// whatever is in it.
func isOpaque(s schema) bool {
	for _, keyword := range []string{"properties", "additionalProperties", "items", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"} {
		if _, ok := s[keyword]; ok {
			return false
		}
	}
	kind, ok := s["type"]
	return !ok || kind == "object"
}

// objectMetaName is the type of the metadata of whole objects.
const objectMetaName = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// adaptRoot reduces the metadata in the schema of a whole object to what the API server allows there:
// it knows the fields itself, and a template may restrict the names only. What is as in Kubernetes' type
// of the metadata is left out, and so are descriptions. Anything else is an error.
func adaptRoot(root, objectMeta schema, path *field.Path) (schema, error) {
	properties, _ := root["properties"].(map[string]any)
	metadata, ok := properties["metadata"].(schema)
	if !ok {
		return root, nil
	}
	path = path.Child("properties").Key("metadata")
	known, _ := objectMeta["properties"].(map[string]any)
	fields, _ := metadata["properties"].(map[string]any)
	names := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case reflect.DeepEqual(fields[name], known[name]):
		case name == "name" || name == "generateName":
			names[name] = fields[name]
		default:
			return nil, mustBeLeftOut(path.Child("properties").Key(name))
		}
	}
	out := schema{}
	if kind, ok := metadata["type"]; ok {
		out["type"] = kind
	}
	if len(names) > 0 {
		out["properties"] = names
	}
	for _, keyword := range slices.Sorted(maps.Keys(metadata)) {
		switch keyword {
		case "type", "properties", "description":
		default:
			return nil, mustBeLeftOut(path.Child(keyword))
		}
	}
	return withKey(root, "properties", withKey(properties, "metadata", out)), nil
}

func mustBeLeftOut(path *field.Path) error {
	return fmt.Errorf("%s: must be left out, because the API server accepts restrictions of name and generateName only", path)
}
