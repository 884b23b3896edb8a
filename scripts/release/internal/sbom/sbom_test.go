// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
	"github.com/patchbay-cni/patchbay/test/source"
)

// artifact has a program of this repository and one of another.
func artifact() Artifact {
	uuid := &debug.Module{Path: "github.com/Google/uuid", Version: "v1.6.0+incompatible", Sum: "h1:old"}
	return Artifact{
		Type: "container", Name: "patchbay-hub", Version: "v0.1.0", Platform: product.Platform{OS: "linux", Arch: "arm64"},
		Digest: strings.Repeat("a", 64), Time: time.Unix(1_700_000_001, 0),
		Programs: []Program{{
			Name: "patchbay-hub", Digest: strings.Repeat("b", 64),
			Info: &debug.BuildInfo{
				GoVersion: "go1.26.8", Path: "github.com/patchbay-cni/patchbay/cmd/patchbay-hub",
				Main:     debug.Module{Path: "github.com/patchbay-cni/patchbay", Version: "(devel)"},
				Deps:     []*debug.Module{uuid},
				Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}},
			},
		}, {
			Name: "kubernetes/kube-apiserver", Digest: strings.Repeat("c", 64),
			Info: &debug.BuildInfo{
				GoVersion: "go1.26.8", Path: "k8s.io/kubernetes/cmd/kube-apiserver",
				Main: debug.Module{Path: "github.com/patchbay-cni/patchbay/test/kubernetes", Version: "(devel)"},
				Deps: []*debug.Module{
					{Path: "k8s.io/api", Version: "v0.0.0", Replace: &debug.Module{Path: "k8s.io/api", Version: "v0.35.0", Sum: "h1:api"}},
					{Path: "k8s.io/kubernetes", Version: "v1.35.0", Sum: "h1:kubernetes"},
					uuid,
				},
			},
		}},
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	bom, err := New(artifact())
	if err != nil {
		t.Fatal(err)
	}
	got, err := bom.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/hub.cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("testdata/hub.cdx.json (-want +got):\n%s", diff)
	}
}

// The serial number names the content: a document with another content has another one.
func TestSerialNumber(t *testing.T) {
	t.Parallel()
	numbers := map[string]bool{}
	for _, digest := range []string{"a", "b", "a"} {
		a := artifact()
		a.Digest = strings.Repeat(digest, 64)
		bom, err := New(a)
		if err != nil {
			t.Fatal(err)
		}
		numbers[bom.SerialNumber] = true
	}
	if len(numbers) != 2 {
		t.Errorf("two documents must have two serial numbers, got %v", numbers)
	}
}

// Both the schema of the format and its decoder for Go accept the document, and find a mistake in it.
func TestSchema(t *testing.T) {
	t.Parallel()
	if err := source.Inputs(); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(*BOM)
		want   string
	}{
		"Good":         {reason: "scanners read what follows the format", change: func(*BOM) {}},
		"SerialNumber": {reason: "the schema knows the form of serial numbers", change: func(b *BOM) { b.SerialNumber = "1" }, want: "/serialNumber"},
		"Type":         {reason: "the schema knows the types of components", change: func(b *BOM) { b.Components[0].Type = "program" }, want: "/components/0/type"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bom, err := New(artifact())
			if err != nil {
				t.Fatal(err)
			}
			tc.change(&bom)
			content, err := bom.Encode()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "bom.json")
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "run", ".", file)
			if cmd.Dir, err = source.Path("test", "sbom"); err != nil {
				t.Fatal(err)
			}
			out, err := cmd.CombinedOutput()
			if (err != nil) != (tc.want != "") || !strings.Contains(string(out), tc.want) {
				t.Errorf("%s: got %v, want an error with %q:\n%s", tc.reason, err, tc.want, out)
			}
		})
	}
}

// `go version -m` prints what the linker has recorded in a program. The SBOM has the same modules.
func TestModulesAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	if err := source.Inputs(); err != nil {
		t.Fatal(err)
	}
	// The linker records no modules in tests.
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", path, ".")
	var err error
	if build.Dir, err = source.Path("test", "sbom"); err != nil {
		t.Fatal(err)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	program, err := ReadProgram(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	a := artifact()
	a.Programs = []Program{program}
	bom, err := New(a)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range bom.Components {
		for _, p := range c.Properties {
			if p.Name == "patchbay:go.sum" {
				got = append(got, c.Name+" "+c.Version+" "+p.Value)
			}
		}
	}
	out, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range bytes.Lines(out) {
		if fields := strings.Fields(string(line)); fields[0] == "dep" {
			want = append(want, strings.Join(fields[1:], " "))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("modules of %d in the program (-want +got):\n%s", len(want), diff)
	}
}

func TestReadProgramRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ reason, name, want string }{
		"Missing": {reason: "a program that was not built is named", name: "patchbayd", want: "patchbayd"},
		"Script":  {reason: "an SBOM without modules would be wrong", name: "script", want: "read the build information of"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := ReadProgram(dir, tc.name); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}
