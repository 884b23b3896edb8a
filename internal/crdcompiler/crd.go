// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// MaxAnnotation is how many bytes the annotations of an object may have. kubectl apply without
// --server-side stores the whole object, as compact JSON, in one of them.
const MaxAnnotation = 262_144

// CRD is a CustomResourceDefinition without references.
type CRD struct {
	// Name is the name of the CustomResourceDefinition, and Minor the version of Kubernetes whose
	// types it has.
	Name, Minor string
	// Source is the path of the template.
	Source string
	Object map[string]any
}

// Path returns the CRD's file below a folder: a folder for each minor.
func (c *CRD) Path() string { return filepath.Join(c.Minor, c.Name+".yaml") }

// JSON returns the CRD as compact JSON.
func (c *CRD) JSON() ([]byte, error) {
	data, err := json.Marshal(c.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Name, err)
	}
	return data, nil
}

// YAML returns the content of the CRD's file. It is the same for the same template, whatever the
// folder in which the compiler is called.
func (c *CRD) YAML() ([]byte, error) {
	data, err := yaml.Marshal(c.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Name, err)
	}
	header := fmt.Sprintf("# Made from %s for Kubernetes %s by kubectl patchbay crd compile. Change the template instead.\n",
		filepath.Base(c.Source), c.Minor)
	return append([]byte(header), data...), nil
}
