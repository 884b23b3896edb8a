// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

// SECURITY.md says of each attack which test carries it out: all of these tests are there,
// and each row of its tables names one.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	file, err := source.Path("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t, filepath.Dir(file))
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	all := named.FindAllStringSubmatch(string(text), -1)
	for _, match := range all {
		if !tests[match[1]] {
			t.Errorf("SECURITY.md names %s: no package has a test of this name", match[1])
		}
	}
	for line := range strings.Lines(string(text)) {
		attack := strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| attack |")
		if attack && !named.MatchString(line) {
			t.Errorf("SECURITY.md names no test of this attack: %s", line)
		}
	}
	if len(all) == 0 {
		t.Error("SECURITY.md names no tests")
	}
}

// testNames are the names of all tests and fuzz targets of the module.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	names, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || path == filepath.Join(root, "bin")) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(text, -1) {
			names[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
