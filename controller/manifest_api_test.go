// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller

import (
	"io"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// The API server accepts the manifests, and the program the flags in them.
func TestManifestsFit(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	folder, err := source.Path("deployments", "controller")
	if err != nil {
		t.Fatal(err)
	}
	out := env.Kubectl(t, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--kustomize="+folder)
	for _, want := range []string{"deployment.apps/patchbay-controller", "poddisruptionbudget.policy/patchbay-controller"} {
		if !strings.Contains(out, want) {
			t.Errorf("applied %q, want %s among it", out, want)
		}
	}
	objects, err := apitest.ReadManifests(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d); err != nil {
			t.Fatal(err)
		}
		if _, err := parseOptions(append(d.Spec.Template.Spec.Containers[0].Args, "--namespace=x"), io.Discard); err != nil {
			t.Errorf("flags of the manifest: %v", err)
		}
	}
}
