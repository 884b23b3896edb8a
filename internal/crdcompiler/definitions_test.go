// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

// Kubernetes 1.31 is the oldest that Patchbay runs on, and the newest is the one whose libraries it
// uses: `make openapi` follows an update of these.
func TestMinors(t *testing.T) {
	t.Parallel()
	minors := readOpenAPI(t).Minors
	file, err := source.Path("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`\tk8s\.io/api v0\.(\d+)\.`).FindSubmatch(modules)
	if used == nil {
		t.Fatal("go.mod has no k8s.io/api")
	}
	newest := "1." + string(used[1])
	if minors[0] != "1.31" || minors[len(minors)-1] != newest || !slices.Contains(minors, "1.35") {
		t.Errorf("got %v, want 1.31 to %s", minors, newest)
	}
}

// Any definition may be a property: the compiled schema is valid. Recursive ones are cut. A minor's test
// compiles what is new or different in it. A list of objects is left out, as its items are compiled.
func TestEveryDefinition(t *testing.T) {
	t.Parallel()
	openAPI := readOpenAPI(t)
	for _, minor := range openAPI.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			definitions, err := openAPI.Of(minor)
			if err != nil {
				t.Fatal(err)
			}
			for name, variants := range openAPI.Definitions {
				isNew := slices.ContainsFunc(variants, func(v variant) bool { return v.Minors[0] == minor })
				if !isNew || strings.HasSuffix(name, "List") {
					continue
				}
				crd, err := Compile(t.Context(), newTestTemplate(t, fmt.Sprintf("a: {$ref: %s}", name)), definitions, Options{CutRecursion: true})
				if err == nil {
					err = Check(t.Context(), crd)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// newTestTemplate returns a template whose schema has these properties.
func newTestTemplate(tb testing.TB, properties string) *Template {
	tb.Helper()
	templates, err := parseTemplates("template.yaml", []byte(templateOf(properties, "")))
	if err != nil {
		tb.Fatal(err)
	}
	return templates[0]
}

// Our own CRD of an installation has three Pod templates. kubectl apply needs it, as compact JSON, to
// be 60 KB below the limit of annotations.
func TestSizeOfThreePodTemplates(t *testing.T) {
	t.Parallel()
	const limit = MaxAnnotation - 60*1024
	openAPI := readOpenAPI(t)
	for _, minor := range openAPI.Minors {
		definitions, err := openAPI.Of(minor)
		if err != nil {
			t.Fatal(err)
		}
		const podTemplate = "{$ref: io.k8s.api.core.v1.PodTemplateSpec}"
		crd, err := Compile(t.Context(), newTestTemplate(t, strings.Join([]string{"a: " + podTemplate, "b: " + podTemplate, "c: " + podTemplate}, ", ")), definitions, Options{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := crd.JSON()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("Kubernetes %s: %d bytes, %d below the limit", minor, len(data), limit-len(data))
		if len(data) > limit {
			t.Errorf("Kubernetes %s: got %d bytes, want at most %d", minor, len(data), limit)
		}
	}
}
