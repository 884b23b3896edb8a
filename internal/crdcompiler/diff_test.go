// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	crd := &CRD{Object: map[string]any{"a": "b", "list": []any{"x", map[string]any{"z": int64(1)}}, "new": map[string]any{}}}
	cases := map[string]struct {
		reason, file string
		want         []string
	}{
		"Same":   {reason: "comments, the order of keys and the format do not count", file: "# a comment\nnew: {}\nlist: [x, {z: 1}]\na: b\n"},
		"JSON":   {reason: "a file may be JSON", file: `{"a": "b", "list": ["x", {"z": 1}], "new": {}}`},
		"Fields": {reason: "fields of both sides are named", file: "{old: 1, list: [x, {z: 2}], new: {}}", want: []string{`+ a: "b"`, "~ list[1].z: 2 -> 1", "- old: 1"}},
		"Lists":  {reason: "lists of another length are shown whole", file: "{a: c, list: [], new: {}}", want: []string{`~ a: "c" -> "b"`, `~ list: [] -> ["x",{"z":1}]`}},
		"Types":  {reason: "another type is another value", file: "{a: [b], list: [x, {z: 1}], new: {}}", want: []string{`~ a: ["b"] -> "b"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document, err := decode([]byte(tc.file))
			if err != nil {
				t.Fatal(err)
			}
			object, _ := document.(map[string]any)
			got := crd.Diff(&CRD{Object: object})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A file may have several documents, of which only some were compiled.
func TestReadCRDs(t *testing.T) {
	t.Parallel()
	compiled := "# Made from a.yaml for Kubernetes 1.35 by kubectl patchbay crd compile. Change the template instead.\n" + templateOf("", "")
	other := templateOf("", "")
	cases := map[string]struct {
		reason, file string
		// want has the source and the minor of each CRD.
		want []string
		err  string
	}{
		"One":         {reason: "a header tells the source", file: compiled, want: []string{"a.yaml 1.35"}},
		"Two":         {reason: "a header stands behind the marker of its document", file: other + "---\n" + compiled, want: []string{" ", "a.yaml 1.35"}},
		"Begin":       {reason: "a file may begin with a marker", file: "---\n" + compiled, want: []string{"a.yaml 1.35"}},
		"SameLine":    {reason: "a document may begin in the line of its marker", file: compiled + "--- {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b}}\n", want: []string{"a.yaml 1.35", " "}},
		"End":         {reason: "YAML has a marker for the end, too", file: compiled + "...\n" + other, want: []string{"a.yaml 1.35", " "}},
		"Empty":       {reason: "a document without a value is none", file: "---\n# nothing\n---\n" + other, want: []string{" "}},
		"NotYAML":     {reason: "the file is YAML or JSON", file: "[", err: "must be YAML or JSON"},
		"List":        {reason: "each document is a definition", file: other + "---\n[]", err: "must be a CustomResourceDefinition: got a list"},
		"HeaderBelow": {reason: "only the first line is a header", file: "# other\n" + compiled, want: []string{" "}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crds, err := ReadCRDs([]byte(tc.file))
			var got []string
			for _, crd := range crds {
				got = append(got, crd.Source+" "+crd.Minor)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
