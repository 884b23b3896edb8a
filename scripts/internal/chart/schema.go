// SPDX-License-Identifier: Apache-2.0

package chart

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// installations is the definition that the values follow.
const installations = "operator/crds/operator.patchbay.io_installations.yaml"

// extraValues is the schema of the values that only the chart has.
//
//go:embed extra-values.yaml
var extraValues []byte

// podTemplate is the name of the definition of Pod templates in the schema.
const podTemplate = "podTemplate"

// schema is a JSON schema.
type schema = map[string]any

// valuesSchema returns the schema of the values: that of the spec of an Installation, with the values that only the
// chart has.
func valuesSchema(deployments string) ([]byte, error) {
	spec, err := installationSpec(filepath.Join(deployments, installations))
	if err != nil {
		return nil, err
	}
	defined := schema{}
	properties, _ := find(spec, "parts", "properties").(map[string]any)
	for _, p := range parts() {
		fields, _ := find(properties, p.name, "properties").(map[string]any)
		whole, ok := fields["template"].(schema)
		if !ok {
			return nil, fmt.Errorf("read %s: parts.%s must have a template", installations, p.name)
		}
		if fields["template"], err = shareTemplate(defined, whole); err != nil {
			return nil, err
		}
		// A DaemonSet has no such field: the operator reports the end of the time.
		if p.kind == "DaemonSet" {
			delete(fields, "progressDeadlineSeconds")
		}
	}
	converted, err := convert(schema{"type": "object", "properties": spec, "$defs": defined}, "values")
	if err != nil {
		return nil, err
	}
	var extra schema
	if err := yaml.Unmarshal(extraValues, &extra); err != nil {
		return nil, fmt.Errorf("decode the schema of further values: %w", err)
	}
	if err := extend(converted, extra, "values"); err != nil {
		return nil, err
	}
	converted["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out, err := json.MarshalIndent(converted, "", " ")
	return append(out, '\n'), err
}

// installationSpec returns the properties of an Installation's spec.
func installationSpec(file string) (map[string]any, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the definition: %w", err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return nil, fmt.Errorf("decode %s: %w", file, err)
	}
	versions, _ := find(definition, "spec", "versions").([]any)
	if len(versions) != 1 {
		return nil, fmt.Errorf("%s: must have one version, which the values follow: got %d", file, len(versions))
	}
	spec, ok := find(versions[0], "schema", "openAPIV3Schema", "properties", "spec", "properties").(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: must have a schema of the spec", file)
	}
	return spec, nil
}

// shareTemplate moves a Pod template into the definitions, once for all parts, and returns what stays: the
// description, and a reference.
func shareTemplate(defined, whole schema) (schema, error) {
	stays := schema{"description": whole["description"], "$ref": "#/$defs/" + podTemplate}
	delete(whole, "description")
	if was, ok := defined[podTemplate]; ok && !reflect.DeepEqual(was, whole) {
		return nil, fmt.Errorf("read %s: the templates of all parts must have the same schema", installations)
	}
	defined[podTemplate] = whole
	return stays, nil
}

// find returns the value below keys, or nil.
func find(value any, keys ...string) any {
	for _, key := range keys {
		below, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = below[key]
	}
	return value
}

// convert returns a schema of a CustomResourceDefinition as a JSON schema that accepts the same. What the API server
// removes because it does not know it is an error here, as it is for kubectl.
func convert(s schema, path string) (schema, error) {
	out := schema{}
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		value := s[keyword]
		var err error
		switch keyword {
		case "properties", "$defs":
			out[keyword], err = convertAll(value, path)
		case "items":
			out[keyword], err = convertBelow(value, path+"[]")
		case "additionalProperties":
			out[keyword], err = convertBelow(value, path+".*")
		case "type", "description", "enum", "pattern", "$ref", "required", "minimum", "maximum", "minLength", "maxLength":
			out[keyword] = value
		case "format", "nullable", "anyOf", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
			"x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-validations":
			// Below, or without a meaning in values: defaults are those of the manifests, and formats are those of Go's types.
		default:
			return nil, fmt.Errorf("%s: the chart must know what to make of the keyword %s", path, keyword)
		}
		if err != nil {
			return nil, err
		}
	}
	if s["x-kubernetes-int-or-string"] == true {
		delete(out, "pattern")
		text := schema{"type": "string"}
		if pattern, ok := s["pattern"]; ok {
			text["pattern"] = pattern
		}
		// A quantity may be a number with a fraction, which YAML does not write as a text.
		out["anyOf"] = []any{schema{"type": "number"}, text}
	}
	if kind, ok := s["type"]; ok && s["nullable"] == true {
		out["type"] = []any{kind, "null"}
	}
	if _, ok := out["properties"]; ok && s["x-kubernetes-preserve-unknown-fields"] != true {
		out["additionalProperties"] = false
	}
	return out, addRules(out, s, path)
}

func convertAll(value any, path string) (schema, error) {
	properties, _ := value.(map[string]any)
	out := make(schema, len(properties))
	for name, below := range properties {
		var err error
		if out[name], err = convertBelow(below, path+"."+name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func convertBelow(value any, path string) (any, error) {
	below, ok := value.(map[string]any)
	if !ok {
		return value, nil // additionalProperties may be true
	}
	return convert(below, path)
}

// addRules adds what the CEL rules of a schema say. A rule that it does not know is an error, so that the chart accepts
// nothing that the operator rejects.
func addRules(out, s schema, path string) error {
	rules, _ := s["x-kubernetes-validations"].([]any)
	for _, value := range rules {
		rule, _ := find(value, "rule").(string)
		switch {
		case rule == agentRule:
			// A template checks it, with the message of the definition.
		case strings.HasPrefix(rule, "type(self) == int ? self >= "):
			var smallest, largest int
			if _, err := fmt.Sscanf(rule, "type(self) == int ? self >= %d && self <= %d :", &smallest, &largest); err != nil {
				return fmt.Errorf("%s: read rule %s: %w", path, rule, err)
			}
			out["anyOf"] = []any{
				schema{"type": "integer", "minimum": smallest, "maximum": largest},
				schema{"type": "string", "pattern": pattern(rule)},
			}
		case strings.HasPrefix(rule, `self == "" || self.matches(`):
			out["anyOf"] = []any{schema{"const": ""}, schema{"pattern": pattern(rule)}}
		case strings.HasPrefix(rule, `self != "`):
			var other string
			if _, err := fmt.Sscanf(rule, "self != %q", &other); err != nil {
				return fmt.Errorf("%s: read rule %s: %w", path, rule, err)
			}
			out["not"] = schema{"const": other}
		default:
			return fmt.Errorf("%s: the chart must know what to make of the rule %s", path, rule)
		}
	}
	return nil
}

// agentRule is the rule of an Installation between two values of the agent.
const agentRule = `!has(self.enabled) || !self.enabled || (has(self.cluster) && self.cluster != "")`

// pattern returns the regular expression between the quotes of a rule. CEL and Helm have the same syntax: Go's.
func pattern(rule string) string {
	_, after, _ := strings.Cut(rule, "matches(")
	_, after, _ = strings.Cut(after, "'")
	end := strings.LastIndex(after, "'")
	return after[:max(end, 0)]
}

// extend adds the properties of another schema. Of a value that is there, it may change the description.
func extend(s, more schema, path string) error {
	to, _ := s["properties"].(schema)
	from, _ := more["properties"].(map[string]any)
	for name, value := range from {
		below, _ := value.(map[string]any)
		was, ok := to[name].(schema)
		switch {
		case !ok:
			to[name] = below
		case len(below) == 1 && below["description"] != nil:
			was["description"] = below["description"]
		case below["properties"] == nil:
			return fmt.Errorf("%s.%s: must be a value that Installation does not have", path, name)
		default:
			if err := extend(was, below, path+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}
