// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// definitions are those of all minors. A definition that is the same in several is there once.
// internal/crdcompiler reads it.
type definitions struct {
	Minors      []string             `json:"minors"`
	Definitions map[string][]variant `json:"definitions"`
}

// variant is what a definition is in some minors.
type variant struct {
	Minors []string       `json:"minors"`
	Schema map[string]any `json:"schema"`
}

func newDefinitions() *definitions {
	return &definitions{Definitions: map[string][]variant{}}
}

// add adds the definitions in the documents of a minor. A document has the definitions of a group of
// the API and what these use, so most are in several.
func (d *definitions) add(minor string, documents [][]byte) error {
	d.Minors = append(d.Minors, minor)
	for _, data := range documents {
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(data, &document); err != nil {
			return fmt.Errorf("decode an OpenAPI document of Kubernetes %s: %w", minor, err)
		}
		for name, schema := range document.Components.Schemas {
			reduced, err := reduce(schema)
			if err != nil {
				return fmt.Errorf("definition %s of Kubernetes %s: %w", name, minor, err)
			}
			d.addDefinition(minor, name, reduced)
		}
	}
	return nil
}

func (d *definitions) addDefinition(minor, name string, schema map[string]any) {
	variants := d.Definitions[name]
	for i := range variants {
		v := &variants[i]
		if v.Minors[len(v.Minors)-1] == minor {
			return // of another document
		}
		if reflect.DeepEqual(v.Schema, schema) {
			v.Minors = append(v.Minors, minor)
			return
		}
	}
	d.Definitions[name] = append(variants, variant{Minors: []string{minor}, Schema: schema})
}

// reduce returns a definition without what no CustomResourceDefinition has. A reference is the name
// of the definition only, and is not wrapped in allOf.
func reduce(schema map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for key, value := range schema {
		var err error
		switch key {
		case "x-kubernetes-group-version-kind", "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy", "x-kubernetes-unions":
		case "$ref":
			name, _ := value.(string)
			out[key] = name[strings.LastIndex(name, "/")+1:]
		case "properties":
			out[key], err = reduceProperties(value)
		case "items", "additionalProperties":
			out[key] = value
			if s, ok := value.(map[string]any); ok {
				out[key], err = reduce(s)
			}
		case "allOf":
			out["$ref"], err = reduceAllOf(value)
		default:
			out[key] = value
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return out, nil
}

func reduceProperties(value any) (map[string]any, error) {
	properties := map[string]any{}
	all, _ := value.(map[string]any)
	for name, property := range all {
		s, _ := property.(map[string]any)
		reduced, err := reduce(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		properties[name] = reduced
	}
	return properties, nil
}

// reduceAllOf returns the name of the definition to which a list with one reference refers.
func reduceAllOf(value any) (any, error) {
	all, _ := value.([]any)
	if len(all) != 1 {
		return nil, fmt.Errorf("must have one schema: got %d", len(all))
	}
	s, _ := all[0].(map[string]any)
	if _, ok := s["$ref"].(string); !ok || len(s) != 1 {
		return nil, errors.New("must have a reference, and nothing else")
	}
	reduced, err := reduce(s)
	return reduced["$ref"], err
}

// encode returns the same bytes for the same definitions: keys are sorted, and the archive has
// neither a name nor a time.
func (d *definitions) encode() ([]byte, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode definitions: %w", err)
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("compress definitions: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("compress definitions: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress definitions: %w", err)
	}
	return out.Bytes(), nil
}

// decodeMinors returns the minors that an encoded file has.
func decodeMinors(data []byte) ([]string, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", definitionsFile, err)
	}
	var d definitions
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("decode %s: %w", definitionsFile, err)
	}
	return d.Minors, nil
}
