// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"

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
	// Source is the path of the template. ReadCRDs returns its name only.
	Source string
	Object map[string]any
}

// header is the first line of a CRD's file.
const header = "# Made from %s for Kubernetes %s by kubectl patchbay crd compile. Change the template instead.\n"

// headerPattern matches the header of a document in a file.
var headerPattern = regexp.MustCompile(`(?m)\A(?:---\s*)?^# Made from (\S.*) for Kubernetes (\S+) by kubectl patchbay crd compile\.`)

// ReadCRDs reads CRDs that were compiled before, or that another tool has written in YAML or JSON. The
// header of a document tells its Source and Minor, which are empty otherwise.
func ReadCRDs(data []byte) ([]*CRD, error) {
	var crds []*CRD
	for _, part := range splitDocuments(data) {
		document, err := decodePart(part)
		if err != nil {
			return nil, err
		}
		if document == nil {
			continue // a comment between two markers
		}
		t, err := newTemplate("", document)
		if err != nil {
			return nil, err
		}
		crd := &CRD{Name: t.Name, Object: t.Object}
		if found := headerPattern.FindSubmatch(part); found != nil {
			crd.Source, crd.Minor = string(found[1]), string(found[2])
		}
		crds = append(crds, crd)
	}
	return crds, nil
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
	return append(fmt.Appendf(nil, header, filepath.Base(c.Source), c.Minor), data...), nil
}
