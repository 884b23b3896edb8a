// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// update writes what the compiler returns into testdata. Review it before you commit it.
var update = flag.Bool("update", false, "write the results into testdata/forms")

// form is one way to write a template. A file in testdata/forms has the template with the files that
// it refers to, and the result.
type form struct {
	reason  string
	minor   string
	options Options
	// folder is what python://dask/ is mapped to.
	folder string
}

func forms() map[string]form {
	return map[string]form{
		"Definition":      {reason: "a definition of Kubernetes is its name", minor: "1.35"},
		"Siblings":        {reason: "what is beside a reference wins, and adds to required, rules and properties", minor: "1.35"},
		"Resolver":        {reason: "a document of k8s_crd_resolver is the target's, whatever its version", minor: "1.31"},
		"PythonMap":       {reason: "documents of a Python package are in a mapped folder, and refer to others there", minor: "1.35", folder: "package"},
		"Files":           {reason: "a file is relative to the one that refers to it; without a fragment it is a schema", minor: "1.35"},
		"Fragments":       {reason: "a fragment is a JSON pointer in the same file; the definitions are not part of the result, wherever they are", minor: "1.35"},
		"AllOf":           {reason: "a structural schema has no types in allOf, so references there are merged", minor: "1.35"},
		"IntOrString":     {reason: "ports may be names, cpu may be 1, and clients write times as null", minor: "1.35"},
		"ListKeys":        {reason: "ports differ in number and protocol, so the protocol needs its default", minor: "1.35"},
		"Metadata":        {reason: "labels and annotations within an object are declared; a list with a key that has no default is atomic", minor: "1.35"},
		"Recursive":       {reason: "a type in itself accepts any value of its type", minor: "1.35", options: Options{CutRecursion: true}},
		"Descriptions":    {reason: "only Kubernetes' descriptions are shortened", minor: "1.35", options: Options{MaxDescription: 20}},
		"AllDescriptions": {reason: "a negative limit keeps descriptions whole", minor: "1.35", options: Options{MaxDescription: -1}},
		"Opaque":          {reason: "a type without fields has any, which the API server must keep", minor: "1.35"},
		"Patch":           {reason: "the patches beside the template are for the result", minor: "1.35"},
		"RootMetadata":    {reason: "the name of an object may be restricted; a description there has no effect", minor: "1.35"},
		"Root":            {reason: "the API server declares the metadata of the whole object itself", minor: "1.35"},
		"Names":           {reason: "a property may have the name of a keyword, and a default is a value", minor: "1.35"},
		"Documents":       {reason: "a file may have several definitions; each has its own fragments", minor: "1.35"},
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	openAPI := readOpenAPI(t)
	for name, f := range forms() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", "forms", name+".txtar")
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			isResult := func(f txtar.File) bool { return f.Name == "result.yaml" }
			var want []byte
			if i := slices.IndexFunc(archive.Files, isResult); i >= 0 {
				want = archive.Files[i].Data
			}
			archive.Files = slices.DeleteFunc(archive.Files, isResult)
			got := f.compile(t, openAPI, archive.Files)
			if *update {
				archive.Files = append(archive.Files, txtar.File{Name: "result.yaml", Data: got})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", f.reason, diff)
			}
		})
	}
}

// A file without a test, or a test without a file, is one that was forgotten.
func TestFormsHaveFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "forms", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".txtar"); forms()[name].reason == "" {
			t.Errorf("%s has no case in forms", file)
		}
	}
}

// compile returns the results for a form as one file, after it has checked them.
func (f *form) compile(t *testing.T, openAPI *OpenAPI, files []txtar.File) []byte {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		writeFile(t, filepath.Join(dir, file.Name), string(file.Data))
	}
	o := f.options
	if f.folder != "" {
		o.Maps = []Map{{Prefix: "python://dask/", Folder: filepath.Join(dir, f.folder)}}
	}
	crds, err := compileFile(t.Context(), openAPI, filepath.Join(dir, "template.yaml"), f.minor, o)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, crd := range crds {
		if err := Check(t.Context(), crd); err != nil {
			t.Error(err)
		}
		data, err := crd.YAML()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return bytes.Join(out, []byte("---\n"))
}

// compileFile compiles all templates of a file.
func compileFile(ctx context.Context, openAPI *OpenAPI, file, minor string, o Options) ([]*CRD, error) {
	definitions, err := openAPI.Of(minor)
	if err != nil {
		return nil, err
	}
	templates, err := ReadTemplates(file)
	if err != nil {
		return nil, err
	}
	var crds []*CRD
	for _, template := range templates {
		crd, err := Compile(ctx, template, definitions, o)
		if err != nil {
			return nil, err
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// decodedOpenAPI is shared by all tests, which do not change it.
var decodedOpenAPI = sync.OnceValues(ReadOpenAPI)

func readOpenAPI(tb testing.TB) *OpenAPI {
	tb.Helper()
	openAPI, err := decodedOpenAPI()
	if err != nil {
		tb.Fatal(err)
	}
	return openAPI
}

func writeFile(tb testing.TB, file, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}
