// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/json"
)

// embedded has the definitions of Kubernetes' OpenAPI documents; scripts/openapi writes it.
//
//go:embed openapi/definitions.json.gz
var embedded []byte

// OpenAPI has the definitions of all minors of Kubernetes that are embedded.
type OpenAPI struct {
	// Minors are the versions without the patch, such as 1.35, from the oldest on.
	Minors      []string             `json:"minors"`
	Definitions map[string][]variant `json:"definitions"`
}

// variant is what a definition is in some minors.
type variant struct {
	Minors []string `json:"minors"`
	Schema schema   `json:"schema"`
}

// ReadOpenAPI decodes the embedded definitions.
func ReadOpenAPI() (*OpenAPI, error) {
	r, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		return nil, fmt.Errorf("open the embedded definitions: %w", err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the embedded definitions: %w", err)
	}
	o := &OpenAPI{}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, o); err != nil {
		return nil, fmt.Errorf("decode the embedded definitions: %w", err)
	}
	return o, nil
}

// Of returns the definitions of one minor.
func (o *OpenAPI) Of(minor string) (*Definitions, error) {
	if !slices.Contains(o.Minors, minor) {
		return nil, fmt.Errorf("must be one of %s: got %q", strings.Join(o.Minors, ", "), minor)
	}
	d := &Definitions{Minor: minor, schemas: make(map[string]schema, len(o.Definitions))}
	for name, variants := range o.Definitions {
		for _, v := range variants {
			if slices.Contains(v.Minors, minor) {
				d.schemas[name] = v.Schema
			}
		}
	}
	maps.Copy(d.schemas, adaptedDefinitions())
	return d, nil
}
