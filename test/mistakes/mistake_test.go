// SPDX-License-Identifier: Apache-2.0

package mistakes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/mistakes"
	"github.com/patchbay-cni/patchbay/test/source"
)

// An answer that does not come from the API server is what a test of its code expects.
func TestAnswersOfOtherTests(t *testing.T) {
	t.Parallel()
	all, err := mistakes.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Test == "" {
			continue
		}
		folder, function, _ := strings.Cut(m.Test, ".Test")
		root, err := source.Path(folder)
		if err != nil {
			t.Fatal(err)
		}
		if !fileHas(t, root, "func Test"+function+"(", m.Answer) {
			t.Errorf("%s: no file of the tests in %s has both Test%s and %q", m.Name, folder, function, m.Answer)
		}
	}
}

// fileHas reports whether one file of the tests in a folder has both texts.
func fileHas(t *testing.T, folder, function, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), function) && strings.Contains(string(data), text) {
			return true
		}
	}
	return false
}

// A file with a fault is an error, so that no mistake is left out.
func TestParse(t *testing.T) {
	t.Parallel()
	const complete = "title: t\nwho: tenant\nsubject: Pods\nexcerpt: e\nremedy: r\nanswer: a\n"
	cases := map[string]struct{ reason, text, want string }{
		"Complete":  {"An object is created.", complete + "create: {kind: Pod}", ""},
		"Unknown":   {"A misspelt field would have no effect.", complete + "creat: {kind: Pod}", "unknown field"},
		"NoAction":  {"Nothing would be tried.", complete, "one of create, command and test"},
		"TwoActs":   {"Only one would be tried.", complete + "create: {kind: Pod}\ncommand: [get]", "one of create, command and test"},
		"NoAnswer":  {"A user reads something.", strings.Replace(complete, "answer: a", "", 1) + "create: {kind: Pod}", "answer must not be empty"},
		"Subject":   {"The page has a table for each subject.", strings.Replace(complete, "Pods", "Podz", 1) + "create: {kind: Pod}", `"Podz" must be one of`},
		"Elsewhere": {"The page says where the answer is.", complete + "test: a.TestB", "test and where"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mistakes.Parse([]byte(tc.text))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
