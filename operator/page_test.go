// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"os"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/test/source"
)

// Each Installation of docs/operator.md can work, and has no field with a mistake.
func TestPage(t *testing.T) {
	t.Parallel()
	path, err := source.Path("docs", "operator.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 4 {
		t.Fatalf("got %d blocks, want 4", len(blocks))
	}
	for _, b := range blocks {
		i := &v1alpha1.Installation{}
		if err := yaml.UnmarshalStrict(b[1], i); err != nil {
			t.Errorf("%v in\n%s", err, b[1])
			continue
		}
		if _, err := render.New(i); err != nil || i.Name != v1alpha1.InstallationName {
			t.Errorf("name %q, %v in\n%s", i.Name, err, b[1])
		}
	}
}
