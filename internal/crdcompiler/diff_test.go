// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
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
			got, err := crd.Diff([]byte(tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	for name, file := range map[string]string{"not YAML": "[", "no object": "[]"} {
		if _, err := crd.Diff([]byte(file)); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
