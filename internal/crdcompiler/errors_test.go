// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// templateOf returns a template whose schema has these properties, in YAML's flow style, and further
// fields beside the definition.
func templateOf(properties, more string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {%s}}}}
%s
`, properties, more)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	const path = "spec.versions[0].schema.openAPIV3Schema.properties[a]"
	cases := map[string]struct {
		reason   string
		template string
		files    map[string]string
		maps     []Map
		minor    string
		want     string
	}{
		"UnknownMinor": {
			reason: "only embedded versions have definitions", template: templateOf("", ""), minor: "1.21",
			want: `must be one of 1.31, 1.32, 1.33, 1.34, 1.35, 1.36, 1.37: got "1.21"`,
		},
		"UnknownDefinition": {
			reason: "a typing error is found", template: templateOf("a: {$ref: io.k8s.api.core.v1.PodTemplatSpec}", ""),
			want: path + `.$ref: "io.k8s.api.core.v1.PodTemplatSpec" must be a definition of Kubernetes: did you mean "io.k8s.api.core.v1.PodTemplateSpec"?`,
		},
		"ShortName": {
			reason: "the name of the kind is not enough", template: templateOf("a: {$ref: Event}", ""),
			want: `did you mean "io.k8s.api.core.v1.Event"?`,
		},
		"NoSuchName": {
			reason: "a file without a folder could be meant", template: templateOf("a: {$ref: nothing}", ""),
			want: `"nothing" must be a definition of Kubernetes, or a file with its folder, such as ./types.yaml`,
		},
		"NewerDefinition": {
			reason: "a definition of a later minor does not exist yet", template: templateOf("a: {$ref: io.k8s.api.core.v1.FileKeySelector}", ""), minor: "1.31",
			want: `must be a definition of Kubernetes`,
		},
		"UnknownInResolver": {
			reason: "the target's definitions count", template: templateOf("a: {$ref: 'python://k8s_crd_resolver/schemata/k8s-1.21.1.json#/definitions/io.k8s.api.batch.v1beta1.CronJob'}", ""),
			want: `"io.k8s.api.batch.v1beta1.CronJob" must be a definition of Kubernetes`,
		},
		"ResolverWithoutName": {
			reason: "the whole document is no schema", template: templateOf("a: {$ref: 'python://k8s_crd_resolver/schemata/k8s-1.21.1.json'}", ""),
			want: "must end with #/definitions/NAME",
		},
		"RefIsNoString": {reason: "a reference is a text", template: templateOf("a: {$ref: 5}", ""), want: path + ".$ref: must be a string: got a number"},
		"RefIsEmpty":    {reason: "an empty reference names nothing", template: templateOf("a: {$ref: ''}", ""), want: "must name a definition of Kubernetes, a file, or a place in this file"},
		"Cycle": {
			reason: "a definition in itself would never end", template: templateOf("a: {$ref: io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps}", ""),
			want: "must not contain itself (io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps -> io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps), because",
		},
		"CycleOfTwo": {
			reason: "references that only refer to each other end nowhere", template: templateOf("a: {$ref: '#/definitions/A'}", "definitions: {A: {$ref: '#/definitions/B'}, B: {$ref: '#/definitions/A'}}"),
			want: "must not contain itself (template.yaml#/definitions/A -> template.yaml#/definitions/B -> template.yaml#/definitions/A), because",
		},
		"CycleThroughFiles": {
			reason: "a file that refers back to the template", template: templateOf("a: {$ref: './b.yaml'}", ""),
			files: map[string]string{"b.yaml": "{type: object, properties: {c: {$ref: 'template.yaml#/spec/versions/0/schema/openAPIV3Schema/properties/a'}}}"},
			want:  "must not contain itself (b.yaml# -> template.yaml#/spec/versions/0/schema/openAPIV3Schema/properties/a -> b.yaml#)",
		},
		"TooLarge": {
			reason:   "references that double each time would fill the memory",
			template: templateOf("a: {$ref: '#/definitions/A0'}", doublingDefinitions(40)),
			want:     "must have at most 3000000 bytes as JSON after its references are resolved",
		},
		"LargeDescriptions": {
			reason:   "few schemas may be large, too",
			template: templateOf("a: {type: object, properties: {"+manyReferences(100)+"}}", "definitions: {A: {type: string, description: "+strings.Repeat("x", 100_000)+"}}"),
			want:     "must have at most 3000000 bytes as JSON after its references are resolved",
		},
		"TooDeep": {
			reason:   "a long chain of references would take long, and is a mistake",
			template: templateOf("a: {$ref: '#/definitions/A0'}", chainOfDefinitions(1000)),
			want:     "must have at most 200 references of which each is in the target of another",
		},
		"DeepInAllOf": {
			reason:   "references in a list are in no target",
			template: templateOf("a: "+strings.Repeat("{allOf: [{$ref: x, allOf: [", 3000)+strings.Repeat("]}]}", 3000), ""),
			want:     "exceeded max depth",
		},
		"RefOfPatch": {
			reason: "references are resolved before the patches are applied", template: templateOf("a: {type: object}", ""),
			files: map[string]string{"template.patch.yaml": "[{op: add, path: /spec/versions/0/schema/openAPIV3Schema/properties/a/$ref, value: io.k8s.api.core.v1.PodSpec}]"},
			want:  path + ".$ref: must be a keyword of a CustomResourceDefinition's schema",
		},
		"DefinitionsOfPatch": {
			reason: "no reference is left", template: templateOf("a: {type: object}", ""),
			files: map[string]string{"template.patch.yaml": "[{op: add, path: /spec/versions/0/schema/openAPIV3Schema/definitions, value: {}}]"},
			want:  "spec.versions[0].schema.openAPIV3Schema.definitions: must be a keyword of a CustomResourceDefinition's schema",
		},
		"PatternProperties": {
			reason: "the API server rejects the keyword", template: templateOf("a: {type: object, patternProperties: {b: {type: string}}}", ""),
			want: path + ".patternProperties: must be a keyword of a CustomResourceDefinition's schema",
		},
		"MetadataProperty": {
			reason: "the API server has the fields itself", template: templateOf("metadata: {$ref: io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta, properties: {labels: {maxProperties: 5}}}", ""),
			want: "spec.versions[0].schema.openAPIV3Schema.properties[metadata].properties[labels]: must be left out, because the API server accepts restrictions of name and generateName only",
		},
		"MetadataKeyword": {
			reason: "the API server rejects it", template: templateOf("metadata: {$ref: io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta, required: [name]}", ""),
			want: "spec.versions[0].schema.openAPIV3Schema.properties[metadata].required: must be left out, because the API server accepts restrictions of name and generateName only",
		},
		"MissingFile":    {reason: "the file's folder is named", template: templateOf("a: {$ref: ./none.yaml}", ""), want: `"./none.yaml": read file of `},
		"MissingPointer": {reason: "the first key that is not there is named", template: templateOf("a: {$ref: '#/definitions/A/B'}", ""), want: "#/definitions must be in the document"},
		"PointerOfList": {
			reason: "the index of a list must exist", template: templateOf("a: {$ref: '#/spec/versions/1/schema'}", ""), want: "#/spec/versions/1 must be in the document",
		},
		"PointerOfText":  {reason: "a reference is to a schema", template: templateOf("a: {$ref: '#/kind'}", ""), want: "#/kind must be a schema: got a string"},
		"PointerNoSlash": {reason: "the name of an anchor is no pointer", template: templateOf("a: {$ref: '#definitions'}", ""), want: "must have #/ before the path in the document"},
		"PointerEscape":  {reason: "a fragment is part of a URI", template: templateOf("a: {$ref: '#/%zz'}", ""), want: "must have a valid fragment"},
		"MissingMap": {
			reason: "nothing is downloaded", template: templateOf("a: {$ref: 'python://dask/types.yaml#/A'}", ""),
			want: `"python://dask/types.yaml" must begin with the prefix of a --map, because nothing is downloaded: add --map python://dask/=DIR`,
		},
		"MissingMapOfURL": {
			reason: "nothing is downloaded, also not by https", template: templateOf("a: {$ref: 'https://example.com/types.yaml#/A'}", ""),
			want: `add --map https://example.com/=DIR`,
		},
		"MissingFolder": {
			reason: "the folder of a map must exist", template: templateOf("", ""), maps: []Map{{Prefix: "python://dask/", Folder: "/nowhere"}},
			want: `the folder of "python://dask/" must exist`,
		},
		"Escape": {
			reason: "a template names no file outside of its folder", template: templateOf("a: {$ref: ../other.yaml}", ""),
			want: `"../other.yaml" must not lead out of the folder`,
		},
		"EscapeInMap": {
			reason: "a document of a package names no file outside of it", template: templateOf("a: {$ref: 'python://dask/x/../../other.yaml'}", ""), maps: []Map{{Prefix: "python://dask/", Folder: "."}},
			want: `must not lead out of the folder .: use --map`,
		},
		"Absolute": {reason: "an absolute path is outside", template: templateOf("a: {$ref: /etc/types.yaml}", ""), want: `"/etc/types.yaml" must be a path from the file that refers to it: use --map`},
		"BadFile": {
			reason: "a file must be YAML or JSON", template: templateOf("a: {$ref: ./b.yaml}", ""), files: map[string]string{"b.yaml": "a: [\n"},
			want: `"./b.yaml": must be YAML or JSON: yaml:`,
		},
		"TwoInFile": {
			reason: "a second document would have no effect", template: templateOf("a: {$ref: ./b.yaml}", ""), files: map[string]string{"b.yaml": "type: string\n---\nmaxLength: 5\n"},
			want: `"./b.yaml": must have one document: got 2`,
		},
		"TwoInPatch": {
			reason: "a second list of patches would have no effect", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yaml": "[]\n--- [{op: remove, path: /spec}]\n"},
			want: "template.patch.yaml: must have one document: got 2",
		},
		"PatchWithOtherEnding": {
			reason: "the patches would have no effect", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yml": "[]"},
			want: "template.patch.yml: must have the name template.patch.yaml, because it has the patches of ",
		},
		"PatchInJSON": {
			reason: "the patches would have no effect", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.json": "[]"},
			want: "template.patch.json: must have the name template.patch.yaml, because it has the patches of ",
		},
		"NotYAML":              {reason: "the template must be YAML", template: "a: [\n", want: "template.yaml: must be YAML or JSON"},
		"TwiceInYAML":          {reason: "a key that is there twice is a mistake", template: "kind: A\nkind: B\n", want: `key "kind" already set in map`},
		"EmptyFile":            {reason: "an empty file has no template", template: "# nothing\n", want: "must have a CustomResourceDefinition: the file is empty"},
		"List":                 {reason: "a list is no object", template: "[]", want: "must be a CustomResourceDefinition: got a list"},
		"TypesBesideTemplates": {reason: "a shell's pattern may match the files of types, too", template: "{Worker: {type: object}}", want: "kind: must be CustomResourceDefinition: got nothing. Only give the files of templates: those to which templates refer belong into a subfolder"},
		"OtherKind":            {reason: "only definitions have schemas", template: "{apiVersion: v1, kind: Pod}", want: `kind: must be CustomResourceDefinition: got "Pod"`},
		"OldVersion":           {reason: "v1beta1 is gone since Kubernetes 1.22", template: "{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition}", want: `apiVersion: must be apiextensions.k8s.io/v1: got "apiextensions.k8s.io/v1beta1"`},
		"NoName":               {reason: "the name becomes that of the file", template: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}", want: "metadata.name: must be PLURAL.GROUP: got nothing"},
		"NameIsPath":           {reason: "no name leads out of the folder of results", template: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ../a}}", want: `metadata.name: must be PLURAL.GROUP: got "../a"`},
		"NameIsParent":         {reason: "two dots are no name", template: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ..}}", want: `metadata.name: must be PLURAL.GROUP: got ".."`},
		"NameHasNoDot":         {reason: "the name has plural and group", template: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}}", want: `metadata.name: must be PLURAL.GROUP: got "a"`},
		"NoSpec":               {reason: "the spec has the schemas", template: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b}}", want: "spec: must be an object: got nothing"},
		"NoVersions":           {reason: "each version has a schema", template: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b}, spec: {}}", want: "spec.versions: must be a list with a version and its schema"},
		"NoSchema":             {reason: "a version needs a schema", template: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b}, spec: {versions: [{name: v1}]}}", want: "spec.versions[0].schema: must be an object: got nothing"},
		"SchemaIsText":         {reason: "a property has a schema", template: templateOf("a: string", ""), want: path + ": must be an object: got a string"},
		"AllOfIsObject":        {reason: "allOf is a list", template: templateOf("a: {allOf: {$ref: x}}", ""), want: path + ".allOf: must be a list of schemas: got an object"},
		"Keyword": {
			reason: "a keyword with a typing error has no effect", template: templateOf("a: {typ: string}", ""),
			want: path + `.typ: must be a keyword of a CustomResourceDefinition's schema: did you mean "type"?`,
		},
		"KeywordInItems": {
			reason: "the API server would ignore it", template: templateOf("a: {type: array, items: {x-nothing: true}}", ""),
			want: path + ".items.x-nothing: must be a keyword",
		},
		"PatchIsNoList": {
			reason: "a patch is a list of operations", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yaml": "op: add"},
			want: "template.patch.yaml: must be a list of JSON patch operations (RFC 6902)",
		},
		"PatchIsNoYAML": {
			reason: "a patch is YAML or JSON", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yaml": "["},
			want: "template.patch.yaml: must be YAML or JSON",
		},
		"PatchOfNothing": {
			reason: "a patch that does not apply is one that was forgotten", template: templateOf("a: {type: string}", ""),
			files: map[string]string{"template.patch.yaml": "[{op: test, path: /kind, value: CustomResourceDefinition}, {op: remove, path: /spec/x}]"},
			want:  "template.patch.yaml: operation 1: must apply to the resolved template: ",
		},
		"PatchOperation": {
			reason: "an operation must be one of the RFC", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yaml": "[{op: merge, path: /kind}]"},
			want: "template.patch.yaml: must be a list of JSON patch operations (RFC 6902): invalid operation",
		},
		"PatchRemovesAll": {
			reason: "what a patch leaves must be an object", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yaml": "[{op: replace, path: '', value: 5}]"},
			want: "template.patch.yaml: ",
		},
		"PatchOfKind": {
			reason: "the result is a definition", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yaml": "[{op: replace, path: /kind, value: Pod}]"},
			want: `template.patch.yaml: the result: kind: must be CustomResourceDefinition: got "Pod"`,
		},
		"PatchOfName": {
			reason: "no name leads out of the folder of results", template: templateOf("a: {type: string}", ""), files: map[string]string{"template.patch.yaml": "[{op: replace, path: /metadata/name, value: ../a.b}]"},
			want: `template.patch.yaml: the result: metadata.name: must be PLURAL.GROUP: got "../a.b"`,
		},
		"PatchOfTwo": {
			reason: "a patch is for one definition", template: templateOf("", "") + "---\n" + templateOf("", ""), files: map[string]string{"template.patch.yaml": "[]"},
			want: "template.patch.yaml: the template beside it must have one CustomResourceDefinition: got 2",
		},
	}
	openAPI := readOpenAPI(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "template.yaml")
			writeFile(t, file, tc.template)
			for name, text := range tc.files {
				writeFile(t, filepath.Join(dir, name), text)
			}
			minor := tc.minor
			if minor == "" {
				minor = "1.35"
			}
			_, err := compileFile(t.Context(), openAPI, file, minor, Options{Maps: tc.maps})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// manyReferences are properties that all refer to the definition A.
func manyReferences(n int) string {
	references := make([]string, n)
	for i := range references {
		references[i] = fmt.Sprintf("p%d: {$ref: '#/definitions/A'}", i)
	}
	return strings.Join(references, ", ")
}

// chainOfDefinitions are definitions of which each refers to the next one.
func chainOfDefinitions(n int) string {
	var out strings.Builder
	out.WriteString("definitions:\n")
	for i := range n {
		fmt.Fprintf(&out, "  A%d: {$ref: '#/definitions/A%d'}\n", i, i+1)
	}
	fmt.Fprintf(&out, "  A%d: {type: string}\n", n)
	return out.String()
}

// doublingDefinitions are definitions of which each has the next one twice.
func doublingDefinitions(n int) string {
	var out strings.Builder
	out.WriteString("definitions:\n")
	for i := range n {
		fmt.Fprintf(&out, "  A%d: {type: object, properties: {a: {$ref: '#/definitions/A%d'}, b: {$ref: '#/definitions/A%d'}}}\n", i, i+1, i+1)
	}
	fmt.Fprintf(&out, "  A%d: {type: string}\n", n)
	return out.String()
}

// A FIFO may have no writer, and a device no end: neither is read.
func TestNoRegularFile(t *testing.T) {
	t.Parallel()
	for reason, name := range map[string]string{"a reference": "types.yaml", "the patches": "template.patch.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "template.yaml"), templateOf("a: {$ref: ./types.yaml}", ""))
			if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := compileFile(t.Context(), readOpenAPI(t), filepath.Join(dir, "template.yaml"), "1.35", Options{})
			if err == nil || !strings.Contains(err.Error(), name+": must be a regular file: got p") {
				t.Errorf("%s: got %v, want an error: the file is a FIFO", reason, err)
			}
		})
	}
}

// A file is read only as far as the limit.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "template.yaml"), templateOf("a: {$ref: ./types.yaml}", ""))
	writeFile(t, filepath.Join(dir, "types.yaml"), "")
	if err := os.Truncate(filepath.Join(dir, "types.yaml"), maxFile+1); err != nil {
		t.Fatal(err)
	}
	_, err := compileFile(t.Context(), readOpenAPI(t), filepath.Join(dir, "template.yaml"), "1.35", Options{})
	if err == nil || !strings.Contains(err.Error(), "types.yaml: must have at most 33554432 bytes") {
		t.Errorf("got %v, want an error: the file is too large", err)
	}
}

// A symbolic link does not lead out of the template's folder either.
func TestSymbolicLink(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(outside, "secret.yaml"), "type: string")
	writeFile(t, filepath.Join(dir, "template.yaml"), templateOf("a: {$ref: ./link.yaml}", ""))
	if err := os.Symlink(filepath.Join(outside, "secret.yaml"), filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	_, err := compileFile(t.Context(), readOpenAPI(t), filepath.Join(dir, "template.yaml"), "1.35", Options{})
	if err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("got %v, want an error: the link leads out of the folder", err)
	}
}

func TestReadTemplatesOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := ReadTemplates(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "read template: open ") {
		t.Errorf("got %v, want the file's name", err)
	}
}

func TestParseMap(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text string
		want         Map
		fails        bool
	}{
		"Package":  {reason: "a Python package is a folder", text: "python://dask/=./dask", want: Map{Prefix: "python://dask/", Folder: "./dask"}},
		"Equals":   {reason: "a folder may have an equals sign", text: "https://a.example/x/=a=b", want: Map{Prefix: "https://a.example/x/", Folder: "a=b"}},
		"NoSlash":  {reason: "a prefix ends at the end of a name", text: "python://dask=./dask", fails: true},
		"NoFolder": {reason: "the folder is missing", text: "python://dask/=", fails: true},
		"NoPrefix": {reason: "the prefix is missing", text: "/=dask", fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseMap(tc.text)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s: got %+v, %v, want %+v", tc.reason, got, err, tc.want)
			}
		})
	}
}
