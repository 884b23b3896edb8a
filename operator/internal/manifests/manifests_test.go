// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/patchbay-cni/patchbay/test/source"
)

// Users of kustomize and of the operator get the same objects, but for the tags of images.
func TestObjectsAreThoseOfKustomize(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, folder string
		read           func() ([]*unstructured.Unstructured, error)
	}{
		"Cluster": {reason: "definitions and workloads", folder: "deployments", read: Cluster},
		"Agent":   {reason: "the agent has a kustomization of its own", folder: "deployments/placement", read: Agent},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := tc.read()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]map[string]any{}
			for _, o := range objects {
				got[key(o)] = o.Object
			}
			if len(got) != len(objects) || len(got) < 5 {
				t.Fatalf("%s: got %d objects with %d names", tc.reason, len(objects), len(got))
			}
			if diff := cmp.Diff(kustomize(t, tc.folder), got); diff != "" {
				t.Errorf("%s: kustomize and the operator differ (-kustomize +operator):\n%s", tc.reason, diff)
			}
		})
	}
}

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// kustomize builds a folder, without the tags of images.
func kustomize(t *testing.T, folder string) map[string]map[string]any {
	t.Helper()
	path, err := source.Path(strings.Split(folder, "/")...)
	if err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		t.Fatal(err)
	}
	// kustomize doubles line breaks in folded texts, which CEL does not read.
	plain := strings.NewReplacer(`:devel"`, `"`, `\n\n`, `\n`)
	all := map[string]map[string]any{}
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON([]byte(plain.Replace(string(text)))); err != nil {
			t.Fatal(err)
		}
		all[key(o)] = o.Object
	}
	return all
}
