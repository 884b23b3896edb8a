// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// The directives of a strategic merge patch that a template may have. Deletions from lists of simple values
// have no place in a schema.
const (
	patchDirective = "$patch"
	retainKeys     = "$retainKeys"
)

// relax changes the schema of a PodTemplateSpec to that of a strategic merge patch for one.
func relax(template map[string]any) {
	properties, _ := template["properties"].(map[string]any)
	spec, _ := properties["spec"].(map[string]any)
	fields, _ := spec["properties"].(map[string]any)
	// Kubernetes accepts no ephemeral containers in a template.
	delete(fields, "ephemeralContainers")
	relaxSchema(template, nil)
	// An item of a list is what it names, so that a volume may get another source.
	volumes, _ := fields["volumes"].(map[string]any)
	items, _ := volumes["items"].(map[string]any)
	volume, _ := items["properties"].(map[string]any)
	volume[retainKeys] = map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "x-kubernetes-list-type": "set"}
}

// relaxSchema makes a schema require only the keys of the list that it is the item of, and accept a directive
// in every object with fields.
func relaxSchema(s map[string]any, keys []any) {
	var kept []any
	required, _ := s["required"].([]any)
	for _, name := range required {
		if slices.Contains(keys, name) {
			kept = append(kept, name)
		}
	}
	delete(s, "required")
	if len(kept) > 0 {
		s["required"] = kept
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, property := range properties {
			if below, ok := property.(map[string]any); ok {
				relaxSchema(below, nil)
			}
		}
		properties[patchDirective] = map[string]any{"type": "string"}
	}
	if below, ok := s["additionalProperties"].(map[string]any); ok {
		relaxSchema(below, nil)
	}
	if items, ok := s["items"].(map[string]any); ok {
		listKeys, _ := s["x-kubernetes-list-map-keys"].([]any)
		relaxSchema(items, listKeys)
	}
}
