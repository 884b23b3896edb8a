// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

type fields = map[string]any

// A write changes what this version knows, and keeps the rest.
func TestReplaceKnown(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason                      string
		stored, before, after, want any
	}{
		"First":     {"Nothing is stored.", nil, fields{}, fields{"a": "1"}, fields{"a": "1"}},
		"Same":      {"Nothing changes.", fields{"a": "1", "new": "2"}, fields{"a": "1"}, fields{"a": "1"}, fields{"a": "1", "new": "2"}},
		"Changed":   {"A known field changes.", fields{"a": "1", "new": "2"}, fields{"a": "1"}, fields{"a": "3"}, fields{"a": "3", "new": "2"}},
		"Added":     {"A known field is new.", fields{"new": "2"}, fields{}, fields{"a": "1"}, fields{"a": "1", "new": "2"}},
		"Removed":   {"A known field goes.", fields{"a": "1", "new": "2"}, fields{"a": "1"}, fields{}, fields{"new": "2"}},
		"Reserved":  {"A field that this version does not know has its own value for it.", fields{"a": fields{"new": "2"}}, fields{"a": fields{}}, fields{"a": fields{"b": "1"}}, fields{"a": fields{"b": "1", "new": "2"}}},
		"Entry":     {"Another entry of a map keeps its new field.", fields{"x": fields{"new": "2"}, "y": fields{"b": "1"}}, fields{"x": fields{}, "y": fields{"b": "1"}}, fields{"x": fields{}}, fields{"x": fields{"new": "2"}}},
		"Recreated": {"An entry that was removed and made again is the new one.", fields{"y": fields{"b": "1"}}, fields{"y": fields{"b": "1"}}, fields{"x": fields{"b": "1"}}, fields{"x": fields{"b": "1"}}},
		"List": {"The list does not change, so its entries keep their new fields.", fields{"l": []any{fields{"k": "1", "new": "2"}}, "a": "1"},
			fields{"l": []any{fields{"k": "1"}}, "a": "1"}, fields{"l": []any{fields{"k": "1"}}, "a": "3"}, fields{"l": []any{fields{"k": "1", "new": "2"}}, "a": "3"}},
		"ChangedEntry": {"An entry changes, and another one moves.", []any{fields{"k": "1", "new": "2"}, fields{"k": "3", "new": "4"}},
			[]any{fields{"k": "1"}, fields{"k": "3"}}, []any{fields{"k": "3"}, fields{"k": "5"}}, []any{fields{"k": "3", "new": "4"}, fields{"k": "5"}}},
		"OtherType": {"What is stored is no map.", "text", fields{}, fields{"a": "1"}, fields{"a": "1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, replaceKnown(tc.stored, tc.before, tc.after)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
