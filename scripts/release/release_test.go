// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/scripts/internal/chart"
	"github.com/patchbay-cni/patchbay/scripts/internal/ociimage"
	"github.com/patchbay-cni/patchbay/scripts/internal/product"
	"github.com/patchbay-cni/patchbay/test/source"
)

// testRelease is a release of this repository.
func testRelease(t *testing.T) release {
	t.Helper()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	return release{
		Source: root, Version: "v0.1.0-rc.1", Commit: strings.Repeat("0", 40), Time: time.Unix(1_700_000_001, 0).UTC(),
		Registry: "registry.example/patchbay", BaseURL: "https://files.example/v0.1.0-rc.1",
	}
}

// published writes a complete release of programs that do nothing, and returns its folder.
func published(t *testing.T, r release) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), r.Version)
	if err := publish(r, product.All(), emptyPrograms(t), out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out
}

// emptyPrograms builds a program that does nothing under each name and for each platform.
func emptyPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for platform, programs := range product.All().Builds() {
		empty := filepath.Join(dir, platform.String(), "empty")
		if err := runBuild([]string{"go", "build", "-o", empty, src}, dir, platform, io.Discard); err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			file := filepath.Join(dir, platform.String(), platform.Executable(p.Name))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(empty, file); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestPublish(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	dir := published(t, r)
	t.Run("Files", func(t *testing.T) { testFiles(t, dir) })
	t.Run("Check", func(t *testing.T) { testCheck(t, r, dir) })
	t.Run("Images", func(t *testing.T) { testImages(t, r, dir) })
	t.Run("Manifests", func(t *testing.T) { testManifests(t, dir) })
	t.Run("Charts", func(t *testing.T) { testCharts(t, r, dir) })
	t.Run("Krew", func(t *testing.T) { testKrew(t, r, dir) })
	t.Run("Reproducible", func(t *testing.T) {
		// The programs are built again, so that their files have other times.
		compare(t, dir, published(t, r))
	})
	t.Run("Again", func(t *testing.T) {
		// An earlier release of the version is replaced, with files that the new one does not have.
		if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := publish(r, product.Product{}, t.TempDir(), dir, io.Discard); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "old")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file of the earlier release must be gone, got error %v", err)
		}
	})
}

// testFiles checks that the checksums list every file, and are right.
func testFiles(t *testing.T, dir string) {
	t.Helper()
	want := strings.Fields(`
		LICENSE NOTICE images.txt charts/patchbay-0.1.0-rc.1.tgz charts/patchbay-crds-0.1.0-rc.1.tgz
		images/patchbay-agent.tar images/patchbay-controller.tar images/patchbay-hub.tar images/patchbay-operator.tar images/patchbayd.tar
		kubectl-patchbay-v0.1.0-rc.1-darwin-amd64.tar.gz kubectl-patchbay-v0.1.0-rc.1-darwin-arm64.tar.gz
		kubectl-patchbay-v0.1.0-rc.1-linux-amd64.tar.gz kubectl-patchbay-v0.1.0-rc.1-linux-arm64.tar.gz
		kubectl-patchbay-v0.1.0-rc.1-windows-amd64.zip krew/patchbay.yaml
		manifests/patchbay.yaml manifests/patchbay-operator.yaml manifests/patchbay-agent.yaml manifests/patchbay-agent-debug.yaml manifests/patchbay-agent-volumes.yaml manifests/patchbay-hub.yaml manifests/patchbay-hub-objects.yaml manifests/patchbay-hub-alerts.yaml
		sbom/patchbayd-linux-amd64.cdx.json sbom/patchbayd-linux-arm64.cdx.json
		sbom/patchbay-controller-linux-amd64.cdx.json sbom/patchbay-controller-linux-arm64.cdx.json
		sbom/patchbay-agent-linux-amd64.cdx.json sbom/patchbay-agent-linux-arm64.cdx.json
		sbom/patchbay-operator-linux-amd64.cdx.json sbom/patchbay-operator-linux-arm64.cdx.json
		sbom/patchbay-hub-linux-amd64.cdx.json sbom/patchbay-hub-linux-arm64.cdx.json
		sbom/kubectl-patchbay-darwin-amd64.cdx.json sbom/kubectl-patchbay-darwin-arm64.cdx.json
		sbom/kubectl-patchbay-linux-amd64.cdx.json sbom/kubectl-patchbay-linux-arm64.cdx.json
		sbom/kubectl-patchbay-windows-amd64.cdx.json`)
	slices.Sort(want)
	var got []string
	for line := range strings.Lines(readString(t, dir, sumsFile)) {
		got = append(got, strings.Fields(line)[1])
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files with a checksum (-want +got):\n%s", diff)
	}
}

// testCheck checks the files with the command of docs/release.md, which must notice each file that is missing.
func testCheck(t *testing.T, r release, dir string) {
	t.Helper()
	var command string
	for line := range strings.Lines(readString(t, r.Source, "docs/release.md")) {
		if strings.HasPrefix(line, "sha256sum --check") {
			command = line
		}
	}
	check := func() ([]byte, error) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	if out, err := check(); err != nil || command == "" {
		t.Errorf("%q in docs/release.md: %v\n%s", command, err, out)
	}
	// A user who downloads files one by one may lack the folder, and has the file beside it.
	image := filepath.Join(dir, "images", "patchbayd.tar")
	if err := os.Rename(image, filepath.Join(dir, "patchbayd.tar")); err != nil {
		t.Fatal(err)
	}
	if out, err := check(); err == nil {
		t.Errorf("%q in docs/release.md must fail without images/patchbayd.tar, got success:\n%s", command, out)
	}
	if err := os.Rename(filepath.Join(dir, "patchbayd.tar"), image); err != nil {
		t.Fatal(err)
	}
}

// testImages checks that each archive is an OCI layout with one name and all platforms.
func testImages(t *testing.T, r release, dir string) {
	t.Helper()
	var names []string
	for _, image := range product.Images() {
		index, err := layout.ImageIndexFromPath(unpackTar(t, bytes.NewReader(read(t, dir, "images/"+image.Name+".tar"))))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", image.Name, err)
		}
		outer, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		// Skopeo takes the image of an archive without a name if there is only one.
		if len(outer.Manifests) != 1 {
			t.Fatalf("%s: the archive must have one entry, got %d", image.Name, len(outer.Manifests))
		}
		names = append(names, outer.Manifests[0].Annotations[ociimage.ContainerdName])
		if got := outer.Manifests[0].Annotations[ociimage.RefName]; got != r.Version {
			t.Errorf("%s: tag in the archive: got %q, want %q", image.Name, got, r.Version)
		}
		platforms, err := index.ImageIndex(outer.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := platforms.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range inner.Manifests {
			img, err := platforms.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.OS != m.Platform.OS || config.Architecture != m.Platform.Architecture || !config.Created.Equal(r.Time) {
				t.Errorf("%s for %s: configuration names %s/%s of %s", image.Name, m.Platform, config.OS, config.Architecture, config.Created)
			}
			if got, want := config.Config.Entrypoint, []string{"/" + image.Name}; !slices.Equal(got, want) {
				t.Errorf("%s for %s: entry point: got %q, want %q", image.Name, m.Platform, got, want)
			}
			got = append(got, m.Platform.String())
		}
		if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, got); diff != "" {
			t.Errorf("%s: platforms (-want +got):\n%s", image.Name, diff)
		}
	}
	if diff := cmp.Diff(strings.Join(names, "\n")+"\n", readString(t, dir, imagesFile)); diff != "" {
		t.Errorf("%s must list the names that containerd imports (-want +got):\n%s", imagesFile, diff)
	}
}

// testManifests checks that the manifests and images.txt name the same images, so that a cluster without access to
// a registry has all that it needs.
func testManifests(t *testing.T, dir string) {
	t.Helper()
	named := map[string]bool{}
	for _, m := range manifests() {
		objects := 0
		for document := range strings.SplitSeq(readString(t, dir, "manifests/"+m.file), "\n---\n") {
			var o struct {
				Kind string
				Spec struct {
					Template *corev1.PodTemplateSpec
				}
			}
			if err := yaml.Unmarshal([]byte(document), &o); err != nil && o.Kind == "" {
				t.Fatalf("%s: %v", m.file, err)
			}
			objects++
			if o.Spec.Template == nil {
				continue
			}
			for _, c := range slices.Concat(o.Spec.Template.Spec.InitContainers, o.Spec.Template.Spec.Containers) {
				named[c.Image] = true
			}
		}
		if objects == 0 {
			t.Errorf("%s has %d objects", m.file, objects)
		}
	}
	want := strings.Fields(readString(t, dir, imagesFile))
	slices.Sort(want)
	var got []string
	for image := range named {
		got = append(got, image)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images in the manifests, beside %s (-want +got):\n%s", imagesFile, diff)
	}
}

// testCharts checks that the charts have the version and the images of the release, and are otherwise those of the
// work tree.
func testCharts(t *testing.T, r release, dir string) {
	t.Helper()
	for _, name := range chart.Names() {
		files := unpackPlugin(t, filepath.Join(dir, "charts", name+"-0.1.0-rc.1.tgz"))
		var metadata struct{ Name, Version, AppVersion string }
		if err := yaml.Unmarshal(read(t, files, name+"/Chart.yaml"), &metadata); err != nil {
			t.Fatal(err)
		}
		if metadata.Name != name || metadata.Version != "0.1.0-rc.1" || metadata.AppVersion != r.Version {
			t.Errorf("%s: got %+v", name, metadata)
		}
		err := filepath.WalkDir(filepath.Join(r.Source, "charts", name), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || entry.Name() == "Chart.yaml" {
				return err
			}
			file := strings.TrimPrefix(path, filepath.Join(r.Source, "charts")+"/")
			want := strings.ReplaceAll(readString(t, r.Source, "charts/"+file), "\npatchbay.local\n", "\n"+r.Registry+"\n")
			if diff := cmp.Diff(want, readString(t, files, file)); diff != "" {
				t.Errorf("%s: -work tree +release\n%s", file, diff)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// testKrew checks that krew finds each archive, and in it the program.
func testKrew(t *testing.T, r release, dir string) {
	t.Helper()
	var manifest krewManifest
	if err := yaml.UnmarshalStrict(read(t, dir, "krew/patchbay.yaml"), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Version != r.Version || len(manifest.Spec.Platforms) != len(product.All().PluginPlatforms) {
		t.Errorf("got version %s for %d platforms", manifest.Spec.Version, len(manifest.Spec.Platforms))
	}
	sums := readString(t, dir, sumsFile)
	for _, platform := range manifest.Spec.Platforms {
		name, ok := strings.CutPrefix(platform.URI, r.BaseURL+"/")
		if !ok || !strings.Contains(sums, platform.SHA256+"  "+name+"\n") {
			t.Errorf("%s with checksum %s is no file of the release", platform.URI, platform.SHA256)
			continue
		}
		files := unpackPlugin(t, filepath.Join(dir, name))
		for name, mode := range map[string]fs.FileMode{platform.Bin: 0o755, "LICENSE": 0o644, "NOTICE": 0o644} {
			info, err := os.Stat(filepath.Join(files, name))
			if err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %s: got %v, %v, want mode %s", platform.URI, name, info, err, mode)
			}
		}
	}
}

// Each kustomization that users apply is in the release.
func TestManifestsAreComplete(t *testing.T) {
	t.Parallel()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	released := map[string]bool{}
	var include func(folder string)
	include = func(folder string) {
		released[folder] = true
		var k struct{ Resources []string }
		if err := yaml.Unmarshal(read(t, root, folder+"/kustomization.yaml"), &k); err != nil {
			t.Fatal(err)
		}
		for _, resource := range k.Resources {
			if path := filepath.Join(folder, resource); filepath.Ext(path) == "" {
				include(path)
			}
		}
	}
	for _, m := range manifests() {
		include(m.kustomization)
	}
	err = filepath.WalkDir(filepath.Join(root, "deployments"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "kustomization.yaml" {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if !released[folder] {
			t.Errorf("%s is in no manifest of the release: add it to manifests()", folder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readString(t *testing.T, dir, name string) string {
	t.Helper()
	return string(read(t, dir, name))
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpackPlugin unpacks an archive by its extension, and returns the folder.
func unpackPlugin(t *testing.T, path string) string {
	t.Helper()
	if filepath.Ext(path) == ".zip" {
		return unpackZip(t, path)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return unpackTar(t, r)
}

func unpackZip(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	r, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, f := range r.File {
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		unpackFile(t, filepath.Join(dir, f.Name), f.Mode(), content)
	}
	return dir
}

func unpackTar(t *testing.T, content io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	r := tar.NewReader(content)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		unpackFile(t, filepath.Join(dir, h.Name), fs.FileMode(h.Mode), r)
	}
}

func unpackFile(t *testing.T, path string, mode fs.FileMode, content io.Reader) {
	t.Helper()
	all, err := io.ReadAll(content)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, all, mode)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatalf("unpack: %v", err)
	}
}
