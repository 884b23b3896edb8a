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

// Alerts that name a metric which does not exist never fire: each one in the pages is in the reference,
// which is made from the programs.
func TestDocsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	folder, err := source.Path("docs")
	if err != nil {
		t.Fatal(err)
	}
	reference, err := os.ReadFile(filepath.Join(folder, "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bpatchbay_\w+`).FindAllString(string(text), -1) {
			found++
			name = strings.TrimSuffix(name, "_bucket") // of a histogram
			if !strings.Contains(string(reference), "| `"+name+"` |") {
				t.Errorf("docs/%s names the metric %s, which is not in docs/reference/metrics.md", filepath.Base(page), name)
			}
		}
	}
	if found == 0 {
		t.Error("no page names a metric")
	}
}
