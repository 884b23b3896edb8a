// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadManifests(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		files  map[string]string
		want   []string
		fails  bool
	}{
		"Empty": {reason: "A folder may hold nothing."},
		"Order": {
			reason: "Files come by path, objects as they stand.",
			files: map[string]string{
				"b.yaml":   "kind: B1\n---\nkind: B2\n",
				"a/x.yaml": "kind: A\n",
			},
			want: []string{"A", "B1", "B2"},
		},
		"Gaps": {
			reason: "A comment between separators is no object.",
			files:  map[string]string{"a.yaml": "# SPDX\n---\n# nothing\n---\nkind: A\n---\n"},
			want:   []string{"A"},
		},
		"Others": {
			reason: "Only manifests are read.",
			files:  map[string]string{"README.md": "kind: A\n", "a.yaml.bak": "kind: A\n"},
		},
		"Broken": {
			reason: "A broken manifest is an error, not an omission.",
			files:  map[string]string{"a.yaml": "kind: [\n"}, fails: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range tc.files {
				writeFile(t, filepath.Join(dir, file), text)
			}
			objects, err := ReadManifests(dir)
			if (err != nil) != tc.fails {
				t.Fatalf("%s\nReadManifests: %v", tc.reason, err)
			}
			if tc.fails {
				return
			}
			var got []string
			for _, o := range objects {
				got = append(got, o.GetKind())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nkinds: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReadManifestsOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := ReadManifests(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadManifests: got %v, want not-exist", err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
