// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/test/docs"
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

// overlay is a command that writes a kustomization.
var overlay = regexp.MustCompile(`(?s)^cat > kustomization\.yaml <<'END'\n(.*)\nEND$`)

// installing is a command that applies or removes a kustomization or a file.
var installing = regexp.MustCompile(`^kubectl (?:apply|delete) .*-[kf] "?([^" ]+)"?`)

// The manifests of a tag name images of a work tree, which no node can pull. So the page installs the manifest of a release,
// or an overlay with images. In the lab, the nodes have all images.
func TestPageInstallsImagesOfARegistry(t *testing.T) {
	t.Parallel()
	page, err := docs.Read("docs/operator.md")
	if err != nil {
		t.Fatal(err)
	}
	overlays := 0
	for _, b := range page.Blocks {
		if b.Language != "" {
			continue
		}
		commands, err := b.Commands()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commands {
			if kustomization := overlay.FindStringSubmatch(c.Text); kustomization != nil {
				overlays++
				requirePullable(t, kustomization[1])
			}
			if what := installing.FindStringSubmatch(c.Text); what != nil && strings.Contains(what[1], "deployments/operator") {
				t.Errorf("line %d: %s installs images of %s: must be the manifest of a release, or an overlay", c.Line, c.Text, version.LocalRegistry)
			}
		}
	}
	if overlays != 1 {
		t.Errorf("got %d overlays, want one", overlays)
	}
}

// requirePullable renders a kustomization of the page with the manifests of this work tree.
func requirePullable(t *testing.T, kustomization string) {
	t.Helper()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	dir, err1 := filepath.EvalSymlinks(t.TempDir())
	root, err2 := filepath.EvalSymlinks(root)
	base, err3 := filepath.Rel(dir, root) // kustomize takes no absolute paths
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("https://github.com/patchbay-cni/patchbay/", base, "?ref=v0.1.0", "").Replace(kustomization)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for _, o := range objects.Resources() {
		if o.GetKind() != "Deployment" {
			continue
		}
		programs++
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(o.MustYaml()), &d); err != nil {
			t.Fatal(err)
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if strings.HasPrefix(c.Image, version.LocalRegistry) || strings.HasSuffix(c.Image, ":"+version.DevelopmentTag) {
				t.Errorf("Deployment %s: container %s has the image %s, which no registry has", d.Name, c.Name, c.Image)
			}
		}
	}
	if programs != 1 {
		t.Errorf("got %d Deployments, want that of the operator", programs)
	}
}
