// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/test/source"
)

// readPage returns docs/operator.md.
func readPage(t *testing.T) []byte {
	t.Helper()
	path, err := source.Path("docs", "operator.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The page names the namespaces, which the operator never removes, and how to remove what an agent has made for itself.
func TestPageNamesWhatStays(t *testing.T) {
	t.Parallel()
	_, after, _ := strings.Cut(string(readPage(t)), "\nThese stay: ")
	stays, _, ok := strings.Cut(after, "Remove the operator last:")
	if !ok {
		t.Fatal("got no paragraph that begins with: These stay")
	}
	i := &v1alpha1.Installation{}
	i.Spec.Parts.PlacementAgent = v1alpha1.PlacementAgentPart{Enabled: true, Cluster: "east"}
	plan, err := render.New(i)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"RoleBindings", "credentials", "kubectl patchbay cluster leave"}
	for _, o := range plan.Objects {
		if o.GetKind() == "Namespace" {
			want = append(want, "`"+o.GetName()+"`")
		}
	}
	for _, w := range want {
		if !strings.Contains(stays, w) {
			t.Errorf("got %q, want %q in it", stays, w)
		}
	}
}

// Each Installation of docs/operator.md can work, and has no field with a mistake.
func TestPage(t *testing.T) {
	t.Parallel()
	text := readPage(t)
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
