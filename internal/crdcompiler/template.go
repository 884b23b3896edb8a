// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// patchSuffix ends the names of files with patches: that of NAME.yaml is NAME.patch.yaml.
const patchSuffix = ".patch.yaml"

// Template is a CustomResourceDefinition whose schemas may have references.
type Template struct {
	// File is the template's path. References to files are relative to it.
	File string
	// Name is the name of the CustomResourceDefinition.
	Name string
	// Object is the template. It may have definitions for the references beside the fields of a
	// CustomResourceDefinition.
	Object map[string]any
	// PatchFile is the path of the file with patches, and Patch its content: a list of operations
	// (RFC 6902) in JSON. Patch is nil without such a file.
	PatchFile string
	Patch     []byte
}

// IsPatch tells whether a file has the patches of a template beside it, and is none itself.
func IsPatch(file string) bool { return strings.HasSuffix(file, patchSuffix) }

// ReadTemplates reads the templates in a file, and the patches beside it.
func ReadTemplates(file string) ([]*Template, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	templates, err := parseTemplates(file, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	patchFile := strings.TrimSuffix(file, filepath.Ext(file)) + patchSuffix
	data, err = os.ReadFile(patchFile)
	if errors.Is(err, fs.ErrNotExist) {
		return templates, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read patches: %w", err)
	}
	if len(templates) > 1 {
		return nil, fmt.Errorf("%s: the template beside it must have one CustomResourceDefinition: got %d", patchFile, len(templates))
	}
	t := templates[0]
	t.PatchFile = patchFile
	if t.Patch, err = yaml.YAMLToJSONStrict(data); err != nil {
		return nil, fmt.Errorf("%s: must be YAML or JSON: %w", patchFile, err)
	}
	return templates, nil
}

// parseTemplates reads the documents of a file.
func parseTemplates(file string, data []byte) ([]*Template, error) {
	var templates []*Template
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		part, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("must be YAML: %w", err)
		}
		document, err := decode(part)
		if err != nil {
			return nil, err
		}
		if document == nil {
			continue // a comment between two separators
		}
		t, err := newTemplate(file, document)
		if err != nil {
			return nil, err
		}
		templates = append(templates, t)
	}
	if len(templates) == 0 {
		return nil, errors.New("must have a CustomResourceDefinition: the file is empty")
	}
	return templates, nil
}

func newTemplate(file string, document any) (*Template, error) {
	object, ok := document.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("must be a CustomResourceDefinition: got %s", kindOf(document))
	}
	if object["kind"] != "CustomResourceDefinition" {
		return nil, fmt.Errorf("kind: must be CustomResourceDefinition: got %s", quoted(object["kind"]))
	}
	if object["apiVersion"] != "apiextensions.k8s.io/v1" {
		return nil, fmt.Errorf("apiVersion: must be apiextensions.k8s.io/v1: got %s", quoted(object["apiVersion"]))
	}
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if len(validation.IsDNS1123Subdomain(name)) > 0 || !strings.Contains(name, ".") {
		return nil, fmt.Errorf("metadata.name: must be PLURAL.GROUP: got %s", quoted(metadata["name"]))
	}
	return &Template{File: file, Name: name, Object: object}, nil
}

// quoted is a value in a message.
func quoted(value any) string {
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return kindOf(value)
}

// decode reads one document of YAML or JSON. Integers stay integers.
func decode(data []byte) (any, error) {
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("must be YAML or JSON: %w", err)
	}
	var document any
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &document); err != nil {
		return nil, fmt.Errorf("must be JSON after the conversion from YAML: %w", err)
	}
	return document, nil
}
