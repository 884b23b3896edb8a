// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

// ARCHITECTURE.md leads readers to files and folders, so each of them exists.
func TestArchitectureNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	page, err := source.Path("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z][\\w.-]*/[\\w./-]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Fatal("ARCHITECTURE.md names no files")
	}
	for _, match := range named {
		path := strings.TrimSuffix(match[1], ".Run")
		if strings.HasPrefix(path, "danm.io/") {
			continue // the API group, annotations and finalizers
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(page), path)); err != nil {
			t.Errorf("ARCHITECTURE.md names %s, which must exist: %v", path, err)
		}
	}
}
