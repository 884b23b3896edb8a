// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"bytes"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"
)

// Whatever a template has: the compiler ends without a panic, and what it returns is the same each
// time, and can be compiled again without a change.
func FuzzCompile(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "forms", "*.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	f.Add([]byte(templateOf("a: {$ref: '#/definitions/A'}", "definitions: {A: {allOf: [{$ref: '#/definitions/A'}]}}")))
	definitions, err := readOpenAPI(f).Of("1.35")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		templates, err := parseTemplates(filepath.Join(dir, "template.yaml"), data)
		if err != nil {
			return
		}
		for _, template := range templates {
			first := compileToYAML(t, template, definitions)
			if first == nil {
				continue
			}
			if second := compileToYAML(t, template, definitions); !bytes.Equal(first, second) {
				t.Errorf("got another result the second time:\n%s\n%s", first, second)
			}
		}
	})
}

// compileToYAML returns nil for a template with a mistake. Checks may reject the result, too.
func compileToYAML(t *testing.T, template *Template, d *Definitions) []byte {
	t.Helper()
	crd, err := Compile(t.Context(), template, d, Options{CutRecursion: true, MaxDescription: 10})
	if err != nil {
		return nil
	}
	_ = Check(t.Context(), crd)
	data, err := crd.YAML()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadCRDs(data)
	if err != nil || len(read) != 1 || read[0].Minor != crd.Minor {
		t.Fatalf("got %d CRDs, %v for the CRD's own file", len(read), err)
	}
	if lines := crd.Diff(read[0]); len(lines) > 0 {
		t.Errorf("got %v for the CRD and its own file", lines)
	}
	return data
}
