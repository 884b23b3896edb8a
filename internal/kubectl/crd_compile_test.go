// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// crdTemplate is a template with a property of this schema, in YAML's flow style.
func crdTemplate(name, property string) string {
	plural, group, _ := strings.Cut(name, ".")
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: %s
  scope: Namespaced
  names: {kind: Thing, plural: %s}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: %s}}}}
`, name, group, plural, property)
}

// crdBench writes files into a folder, and returns a function that runs `crd compile` with arguments in
// which DIR stands for the folder.
func crdBench(t *testing.T, files map[string]string) (dir string, do func(args ...string) (printed, warnings string, err error)) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(args ...string) (string, string, error) {
		var out, warnings bytes.Buffer
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "DIR", dir)
		}
		err := Run(t.Context(), append([]string{"crd", "compile"}, args...), &out, &warnings)
		return strings.ReplaceAll(out.String(), dir, "DIR"), warnings.String(), err
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	dir, do := crdBench(t, map[string]string{
		"good.yaml":       crdTemplate("goods.example.com", "{$ref: io.k8s.api.core.v1.LocalObjectReference}"),
		"same.yaml":       crdTemplate("goods.example.com", "{type: string}"),
		"other.yaml":      crdTemplate("others.example.com", "{type: string}"),
		"bad.yaml":        crdTemplate("bads.example.com", "{$ref: io.k8s.api.core.v1.PodSpek}"),
		"worse.yaml":      crdTemplate("worses.example.com", "{$ref: ./none.yaml}"),
		"untyped.yaml":    crdTemplate("untypeds.example.com", "{minLength: 1}"),
		"tree.yaml":       crdTemplate("trees.example.com", "{$ref: io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps}"),
		"dask.yaml":       crdTemplate("dasks.example.com", "{$ref: 'python://dask/types.yaml#/A'}"),
		"good.patch.yaml": "[]",
		"lost.patch.yaml": "[]",
		"lost.patch.json": "[]",
		"types.yaml":      "{Worker: {type: object}}",
		"list.yaml":       "[]",
	})
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"NoFile":       {reason: "templates are named", args: []string{"--kubernetes=1.35"}, want: "kubectl patchbay crd compile: give the files of templates"},
		"NoMinor":      {reason: "the result depends on the version", args: []string{"DIR/good.yaml"}, want: "flag --kubernetes: must name the versions of Kubernetes"},
		"UnknownMinor": {reason: "the versions that exist are named", args: []string{"DIR/good.yaml", "--kubernetes=1.21"}, want: `flag --kubernetes: must be one of 1.31, 1.32, 1.33, 1.34, 1.35, 1.36, 1.37: got "1.21"`},
		"MinorTwice":   {reason: "a version has one result", args: []string{"DIR/good.yaml", "--kubernetes=1.35,1.35"}, want: "flag --kubernetes: must name each version once: got 1.35,1.35"},
		"SeveralToOne": {reason: "two versions of one definition on standard output would be mixed up", args: []string{"DIR/good.yaml", "--kubernetes=1.34,1.35"}, want: "flag --output: must name a folder for several versions"},
		"Both":         {reason: "a comparison writes nothing", args: []string{"DIR/good.yaml", "--kubernetes=1.35", "-o=DIR/x", "--diff=DIR/x"}, want: "flag --diff: must not be with --output"},
		"Rule":         {reason: "the rules are named", args: []string{"DIR/good.yaml", "--kubernetes=1.35", "--recursive-types=keep"}, want: `flag --recursive-types: must be refuse or cut: got "keep"`},
		"Map":          {reason: "the form of a map is named", args: []string{"DIR/good.yaml", "--kubernetes=1.35", "--map=python://dask"}, want: `flag --map: must be PREFIX/=DIR, such as python://PACKAGE/=./PACKAGE: got "python://dask"`},
		"NoMap":        {reason: "the missing map is named", args: []string{"DIR/dask.yaml", "--kubernetes=1.35"}, want: "add --map python://dask/=DIR"},
		"OnlyPatch":    {reason: "patches need their template", args: []string{"DIR/good.patch.yaml", "--kubernetes=1.35"}, want: "good.patch.yaml: must be NAME.patch.yaml beside its template NAME.yaml: give the template, too"},
		"LostPatch":    {reason: "the patches would have no effect", args: []string{"DIR/good.yaml", "DIR/lost.patch.yaml", "--kubernetes=1.35"}, want: "lost.patch.yaml: must be NAME.patch.yaml beside its template"},
		"LostJSON":     {reason: "patches have one ending", args: []string{"DIR/good.yaml", "DIR/lost.patch.json", "--kubernetes=1.35"}, want: "lost.patch.json: must be NAME.patch.yaml beside its template"},
		"Once":         {reason: "a mistake that all versions have is reported once", args: []string{"DIR/bad.yaml", "--kubernetes=1.34,1.35", "-o=DIR/x"}, want: "for Kubernetes 1.34, 1.35: DIR/bad.yaml: spec.versions[0]"},
		"Types":        {reason: "a pattern may match the files of types", args: []string{"DIR/good.yaml", "DIR/types.yaml", "--kubernetes=1.35"}, want: "belong into a subfolder"},
		"Twice":        {reason: "one result would replace the other", args: []string{"DIR/good.yaml", "DIR/same.yaml", "--kubernetes=1.35"}, want: `metadata.name: must be another than in `},
		"Missing":      {reason: "the missing file is named", args: []string{"DIR/none.yaml", "--kubernetes=1.35"}, want: "none.yaml: no such file"},
		"All":          {reason: "the errors of all templates are reported at once", args: []string{"DIR/bad.yaml", "DIR/worse.yaml", "--kubernetes=1.35"}, want: "worse.yaml: spec.versions[0]"},
		"Recursive":    {reason: "a type in itself is refused", args: []string{"DIR/tree.yaml", "--kubernetes=1.35"}, want: "use --recursive-types=cut"},
		"Check":        {reason: "the API server's rules are checked", args: []string{"DIR/untyped.yaml", "--kubernetes=1.35", "--check"}, want: "untyped.yaml: spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value"},
		"NoDiff":       {reason: "there must be something to compare with", args: []string{"DIR/good.yaml", "--kubernetes=1.35", "--diff=DIR/nowhere"}, want: "flag --diff: must be a file or a folder"},
		"DiffWithMany": {reason: "a file has results of one version", args: []string{"DIR/good.yaml", "--kubernetes=1.34,1.35", "--diff=DIR/good.yaml"}, want: "flag --diff: must be a folder for several versions of Kubernetes"},
		"DiffWithList": {reason: "a result is compared with an object", args: []string{"DIR/good.yaml", "--kubernetes=1.35", "--diff=DIR/list.yaml"}, want: "list.yaml: must be a CustomResourceDefinition: got a list"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := do(tc.args...); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir, "DIR"), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// The results are written, compared and printed; a shell's pattern may match the patches.
func TestCompile(t *testing.T) {
	t.Parallel()
	dir, do := crdBench(t, map[string]string{
		"templates/good.yaml":       crdTemplate("goods.example.com", "{$ref: io.k8s.api.core.v1.LocalObjectReference, x-kubernetes-preserve-unknown-fields: true}"),
		"templates/good.patch.yaml": "[{op: remove, path: /spec/versions/0/schema/openAPIV3Schema/properties/a/x-kubernetes-preserve-unknown-fields}]",
		"templates/map.yaml":        crdTemplate("maps.example.com", "{$ref: 'python://dask/types.yaml#/A'}"),
		"dask/types.yaml":           "A: {type: object, properties: {tree: {$ref: '#/A'}}}",
	})
	all := []string{"DIR/templates/good.yaml", "DIR/templates/good.patch.yaml", "DIR/templates/map.yaml", "--map=python://dask/=DIR/dask", "--recursive-types=cut", "--check"}
	with := func(more ...string) []string { return append(append([]string{}, all...), more...) }

	printed, warnings, err := do(with("--kubernetes=1.34,1.35", "-o=DIR/crds")...)
	want := "DIR/crds/1.34/goods.example.com.yaml\nDIR/crds/1.34/maps.example.com.yaml\nDIR/crds/1.35/goods.example.com.yaml\nDIR/crds/1.35/maps.example.com.yaml\n"
	if err != nil || warnings != "" || printed != want {
		t.Fatalf("got %q, %q, %v, want %q", printed, warnings, err, want)
	}
	good, err := os.ReadFile(filepath.Join(dir, "crds", "1.35", "goods.example.com.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if printed, _, err = do("DIR/templates/good.yaml", "--kubernetes=1.35"); err != nil || printed != string(good) {
		t.Errorf("standard output (-file +printed): %v\n%s", err, cmp.Diff(string(good), printed))
	}
	if printed, _, err = do(with("--kubernetes=1.35")...); err != nil || !strings.HasPrefix(printed, string(good)+"---\n# Made from map.yaml for Kubernetes 1.35") {
		t.Errorf("several on standard output: got %q, %v", printed, err)
	}
	if printed, warnings, err = do(with("--kubernetes=1.34,1.35", "--diff=DIR/crds")...); err != nil || printed != "" || warnings != "" {
		t.Errorf("nothing changed: got %q, %q, %v", printed, warnings, err)
	}
	if printed, _, err = do("DIR/templates/good.yaml", "--kubernetes=1.35", "--diff=DIR/crds/1.34/goods.example.com.yaml"); err != nil || printed != "" {
		t.Errorf("a file: got %q, %v", printed, err)
	}
}

// Each difference fails the comparison: a changed file, one that is missing, and one that no template makes.
func TestCompileDiff(t *testing.T) {
	t.Parallel()
	const (
		made = "# Made from c.yaml for Kubernetes 1.35 by kubectl patchbay crd compile. Change the template instead.\n"
		path = "spec.versions[0].schema.openAPIV3Schema.properties.a"
		a    = "\n  + " + path + ".maxLength: 5\n  - " + path + ".minLength: 5\n"
	)
	changed, compiled := crdTemplate("as.example.com", "{type: string, minLength: 5}"), crdTemplate("bs.example.com", "{type: string}")
	old, foreign := made+crdTemplate("cs.example.com", "{type: string}"), crdTemplate("ds.example.com", "{type: string}")
	cases := map[string]struct {
		reason string
		files  map[string]string
		diff   string
		want   string
		err    string
	}{
		"Folder": {
			reason: "a folder lacks a file, and has files of other tools",
			files:  map[string]string{"crds/1.35/as.example.com.yaml": changed, "crds/1.35/ds.yaml": foreign, "crds/1.35/kustomization.yaml": "{}", "crds/1.34/cs.yaml": old},
			diff:   "DIR/crds", want: "DIR/crds/1.35/as.example.com.yaml" + a + "DIR/crds/1.35/bs.example.com.yaml\n  + the file is missing\n",
			err: "2 CustomResourceDefinitions differ from the 2 that the templates make: compile them again",
		},
		"Old": {
			reason: "a file whose template was removed would be installed for ever",
			files:  map[string]string{"crds/1.35/as.example.com.yaml": changed, "crds/1.35/bs.example.com.yaml": compiled, "crds/1.35/cs.example.com.yaml": old},
			diff:   "DIR/crds", want: "DIR/crds/1.35/as.example.com.yaml" + a + "DIR/crds/1.35/cs.example.com.yaml\n  - cs.example.com is made by no template\n",
			err: "2 CustomResourceDefinitions differ",
		},
		"Document": {
			reason: "a second document in the file of a result would be lost",
			files:  map[string]string{"crds/1.35/as.example.com.yaml": changed, "crds/1.35/bs.example.com.yaml": compiled + "---\n" + foreign},
			diff:   "DIR/crds", want: "DIR/crds/1.35/as.example.com.yaml" + a + "DIR/crds/1.35/bs.example.com.yaml\n  - ds.example.com is made by no template\n",
			err: "2 CustomResourceDefinitions differ",
		},
		"File": {
			reason: "documents are chosen by their names, and those of other tools are left alone", files: map[string]string{"all.yaml": foreign + "---\n" + compiled + "---\n" + old + "---\n" + changed},
			diff: "DIR/all.yaml", want: "DIR/all.yaml" + a + "DIR/all.yaml\n  - cs.example.com is made by no template\n",
			err: "2 CustomResourceDefinitions differ",
		},
		"FileLacksOne": {
			reason: "a file lacks a result", files: map[string]string{"all.yaml": changed}, diff: "DIR/all.yaml", want: "DIR/all.yaml" + a + "DIR/all.yaml\n  + bs.example.com is missing\n",
			err: "2 CustomResourceDefinitions differ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.files["a.yaml"] = crdTemplate("as.example.com", "{type: string, maxLength: 5}")
			tc.files["b.yaml"] = compiled
			_, do := crdBench(t, tc.files)
			printed, _, err := do("DIR/a.yaml", "DIR/b.yaml", "--kubernetes=1.35", "--diff="+tc.diff)
			if diff := cmp.Diff(tc.want, printed); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.err)
			}
		})
	}
}

// Several results on standard output can be compared later.
func TestCompileDiffOfStandardOutput(t *testing.T) {
	t.Parallel()
	dir, do := crdBench(t, map[string]string{
		"a.yaml": crdTemplate("as.example.com", "{type: string}"),
		"b.yaml": crdTemplate("bs.example.com", "{type: integer}"),
	})
	printed, _, err := do("DIR/a.yaml", "DIR/b.yaml", "--kubernetes=1.35")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(printed), 0o644); err != nil {
		t.Fatal(err)
	}
	if printed, _, err := do("DIR/b.yaml", "DIR/a.yaml", "--kubernetes=1.35", "--diff=DIR/all.yaml"); err != nil || printed != "" {
		t.Errorf("got %q, %v, want no differences", printed, err)
	}
}

// The compilation ends with its context, without the errors of templates.
func TestCompileIsInterrupted(t *testing.T) {
	t.Parallel()
	dir, _ := crdBench(t, map[string]string{"a.yaml": crdTemplate("as.example.com", "{type: string}")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, []string{"crd", "compile", filepath.Join(dir, "a.yaml"), "--kubernetes=1.35"}, io.Discard, io.Discard)
	if err != context.Canceled { //nolint:errorlint // no other error may be with it
		t.Errorf("got %v, want that the context has ended", err)
	}
}

// kubectl apply cannot store a large definition in its annotation.
func TestCompileWarnsOfSize(t *testing.T) {
	t.Parallel()
	_, do := crdBench(t, map[string]string{"pods.yaml": crdTemplate("pods.example.com", "{$ref: io.k8s.api.core.v1.PodTemplateSpec}")})
	for arg, want := range map[string]string{
		"--max-descriptions=0":  "",
		"--max-descriptions=-1": "warning: pods.example.com for Kubernetes 1.35 has ",
	} {
		if printed, warnings, err := do("DIR/pods.yaml", "--kubernetes=1.35", arg); err != nil || printed == "" || !strings.HasPrefix(warnings, want) || (want == "") != (warnings == "") {
			t.Errorf("%s: got %.300q, %v, want %q", arg, warnings, err, want)
		}
	}
}
