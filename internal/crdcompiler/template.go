// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// patchSuffix ends the names of files with patches: that of NAME.yaml is NAME.patch.yaml.
const patchSuffix = ".patch.yaml"

// patchSuffixes are all endings of names that look like those of files with patches.
func patchSuffixes() []string { return []string{patchSuffix, ".patch.yml", ".patch.json"} }

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

// IsPatch tells whether a file has the patches of a template beside it, and is none itself. A name that
// ReadTemplates does not accept counts, too.
func IsPatch(file string) bool {
	return slices.ContainsFunc(patchSuffixes(), func(suffix string) bool { return strings.HasSuffix(file, suffix) })
}

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
	patchFile, err := findPatch(file)
	if err != nil || patchFile == "" {
		return templates, err
	}
	if len(templates) > 1 {
		return nil, fmt.Errorf("%s: the template beside it must have one CustomResourceDefinition: got %d", patchFile, len(templates))
	}
	t := templates[0]
	t.PatchFile = patchFile
	if t.Patch, err = readPatch(patchFile); err != nil {
		return nil, fmt.Errorf("%s: %w", patchFile, err)
	}
	return templates, nil
}

// findPatch returns the path of the file with patches beside a template, or "" if there is none.
func findPatch(file string) (string, error) {
	base := strings.TrimSuffix(file, filepath.Ext(file))
	found := ""
	for _, suffix := range patchSuffixes() {
		_, err := os.Lstat(base + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("find patches: %w", err)
		}
		if suffix != patchSuffix {
			return "", fmt.Errorf("%s: must have the name %s, because it has the patches of %s", base+suffix, filepath.Base(base+patchSuffix), file)
		}
		found = base + suffix
	}
	return found, nil
}

// readPatch returns a file with patches as JSON.
func readPatch(file string) ([]byte, error) {
	f, err := os.OpenFile(file, openFlags, 0)
	if err != nil {
		return nil, fmt.Errorf("read patches: %w", err)
	}
	data, err := readRegular(f)
	if err != nil {
		return nil, fmt.Errorf("read patches: %w", err)
	}
	document, err := decode(data)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode patches: %w", err)
	}
	return patch, nil
}

// parseTemplates reads the documents of a file.
func parseTemplates(file string, data []byte) ([]*Template, error) {
	documents, err := decodeAll(data)
	if err != nil {
		return nil, err
	}
	var templates []*Template
	for _, document := range documents {
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
		return nil, fmt.Errorf("kind: must be CustomResourceDefinition: got %s. Only give the files of templates: those to which templates refer belong into a subfolder", quoted(object["kind"]))
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
