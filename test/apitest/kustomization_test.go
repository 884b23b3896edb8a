// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/test/source"
)

// A manifest that is in no kustomization is installed in tests and nowhere else. The definitions are in the
// one of their own only, so that the programs can be removed without them.
func TestKustomizationsNameEveryManifest(t *testing.T) {
	t.Parallel()
	folder, err := source.Path("deployments")
	if err != nil {
		t.Fatal(err)
	}
	var want, definitions, operator []string
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "placement" {
			return fs.SkipDir // the hub's and the agent's, in clusters without networks, too
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" {
			return err
		}
		if strings.HasPrefix(path, filepath.Join(folder, "operator")+"/") {
			operator = append(operator, path)
			return nil
		}
		want = append(want, path)
		if filepath.Dir(path) == filepath.Join(folder, "crds") {
			definitions = append(definitions, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	workloads := slices.DeleteFunc(slices.Clone(want), func(path string) bool { return slices.Contains(definitions, path) })
	for _, tc := range []struct {
		reason, folder string
		want           []string
	}{
		{"It installs everything.", ".", want},
		{"The definitions alone.", "crds", definitions},
		{"The programs alone.", "workloads", workloads},
		{"The operator, which installs the others.", "operator", operator},
	} {
		got := manifestsOf(t, filepath.Join(folder, tc.folder))
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s resources of deployments/%s/kustomization.yaml: -files +named\n%s", tc.reason, tc.folder, diff)
		}
	}
}

// manifestsOf returns the files that the kustomization of a folder names, and those that it includes.
func manifestsOf(t *testing.T, folder string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, r := range kustomization.Resources {
		if path := filepath.Join(folder, r); filepath.Ext(r) == ".yaml" {
			files = append(files, path)
		} else {
			files = append(files, manifestsOf(t, path)...)
		}
	}
	return files
}

// A policy without a binding checks nothing, and fails closed only if it says so.
func TestEveryPolicyIsBoundAndFailsClosed(t *testing.T) {
	t.Parallel()
	folder, err := source.Path("deployments")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := ReadManifests(folder)
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]bool{}
	var policies []*unstructured.Unstructured
	for _, o := range objects {
		switch o.GetKind() {
		case "ValidatingAdmissionPolicy":
			policies = append(policies, o)
		case "ValidatingAdmissionPolicyBinding":
			name, _, _ := unstructured.NestedString(o.Object, "spec", "policyName")
			actions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "validationActions")
			bound[name] = slices.Equal(actions, []string{"Deny"})
		}
	}
	if len(policies) == 0 {
		t.Fatal("found no policy in deployments/")
	}
	for _, p := range policies {
		if fail, _, _ := unstructured.NestedString(p.Object, "spec", "failurePolicy"); fail != "Fail" || !bound[p.GetName()] {
			t.Errorf("%s: failurePolicy %q, denies by a binding: %v", p.GetName(), fail, bound[p.GetName()])
		}
	}
}
