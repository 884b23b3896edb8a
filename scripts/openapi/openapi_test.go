// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/source"
)

// folder returns a copy of the folder that the command writes.
func folder(t *testing.T) string {
	t.Helper()
	from, err := source.Path("internal", "crdcompiler", "openapi")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{sourcesFile, definitionsFile} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		// from is replaced by to in sources.txt.
		from, to, want string
	}{
		"Committed": {reason: "the committed files belong together"},
		"Digest":    {reason: "the definitions were changed by hand", from: definitionsFile + " sha256:", to: definitionsFile + " sha256:0", want: "has the digest sha256:"},
		"Checksum":  {reason: "a new line has no checksum yet", from: "k8s.io/kubernetes v1.31.14 h1:", to: "k8s.io/kubernetes v1.31.14 #", want: "k8s.io/kubernetes v1.31.14 has no checksum: run `make openapi`"},
		"Version":   {reason: "the line of a minor was added", from: "k8s.io/kubernetes v1.31.14 h1:", to: "k8s.io/kubernetes v1.30.0 h1:", want: "has Kubernetes 1.31 "},
		"Form":      {reason: "a version has three numbers", from: "v1.31.14", to: "v1.31", want: `version "v1.31" must be vMAJOR.MINOR.PATCH`},
		"Line":      {reason: "a line has three words", from: "k8s.io/kubernetes v1.31.14", to: "k8s.io/kubernetes v1.31.14 a b", want: "must have a module, its version and its checksum"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			file := filepath.Join(dir, sourcesFile)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(strings.Replace(string(text), tc.from, tc.to, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			err = check(dir)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// What is read is written again, so that `make openapi` changes only what differs.
func TestSourcesKeepTheirForm(t *testing.T) {
	t.Parallel()
	file := filepath.Join(folder(t), sourcesFile)
	s, err := readSources(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(s.encode())); diff != "" {
		t.Errorf("-file +encoded:\n%s", diff)
	}
}

// A definition that is the same in two minors is there once, without what CustomResourceDefinitions lack.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	d := newDefinitions()
	const beginning = `{"components": {"schemas": {"A": {"type": "object", "x-kubernetes-group-version-kind": [], "properties": {
		"b": {"allOf": [{"$ref": "#/components/schemas/B"}], "default": {}, "description": "d"},
		"c": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": {"$ref": "#/components/schemas/B"}},
		"m": {"additionalProperties": {"$ref": "#/components/schemas/B"}}}}, "B": {"type": "`
	for minor, kind := range []string{"string", "string", "integer"} {
		document := []byte(beginning + kind + `"}}}}`)
		if err := d.add([]string{"1.1", "1.2", "1.3"}[minor], [][]byte{document, document}); err != nil {
			t.Fatal(err)
		}
	}
	b := map[string]any{"$ref": "B"}
	want := map[string][]variant{
		"A": {{Minors: []string{"1.1", "1.2", "1.3"}, Schema: map[string]any{"type": "object", "properties": map[string]any{
			"b": map[string]any{"$ref": "B", "default": map[string]any{}, "description": "d"},
			"c": map[string]any{"type": "array", "items": b},
			"m": map[string]any{"additionalProperties": b},
		}}}},
		"B": {{Minors: []string{"1.1", "1.2"}, Schema: map[string]any{"type": "string"}}, {Minors: []string{"1.3"}, Schema: map[string]any{"type": "integer"}}},
	}
	if diff := cmp.Diff(want, d.Definitions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	data, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	if minors, err := decodeMinors(data); err != nil || strings.Join(minors, " ") != "1.1 1.2 1.3" {
		t.Errorf("got minors %v, %v", minors, err)
	}
	if err := d.add("1.4", [][]byte{[]byte("{")}); err == nil {
		t.Error("a document that is no JSON: got no error")
	}
}

// A list allOf is not dropped: the command knows only the form that Kubernetes uses.
func TestDefinitionsWithOtherAllOf(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, allOf, want string }{
		"Two":     {reason: "two schemas would have to be merged", allOf: `[{"$ref": "B"}, {"$ref": "C"}]`, want: "definition A of Kubernetes 1.1: properties: b: allOf: must have one schema: got 2"},
		"Empty":   {reason: "an empty list has no reference", allOf: `[]`, want: "must have one schema: got 0"},
		"Schema":  {reason: "keywords would be lost", allOf: `[{"type": "string"}]`, want: "must have a reference, and nothing else"},
		"Sibling": {reason: "keywords beside a reference would be lost", allOf: `[{"$ref": "B", "nullable": true}]`, want: "must have a reference, and nothing else"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document := `{"components": {"schemas": {"A": {"properties": {"b": {"allOf": ` + tc.allOf + `}}}}}}`
			if err := newDefinitions().add("1.1", [][]byte{[]byte(document)}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// Only the documents of version 3 count.
func TestReadDocuments(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "module.zip")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for _, name := range []string{"api/openapi-spec/v3/api__v1_openapi.json", "api/openapi-spec/swagger.json", "vendor/api/openapi-spec/v3/other_openapi.json"} {
		part, err := w.Create("k8s.io/kubernetes@v1.35.4/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	documents, err := readDocuments(archive)
	if err != nil || len(documents) != 1 || string(documents[0]) != "api/openapi-spec/v3/api__v1_openapi.json" {
		t.Errorf("got %q, %v, want one document", documents, err)
	}
}
