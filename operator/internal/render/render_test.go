// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

// Run `go test ./operator/internal/render -update` after a change of deployments/ or of the renderer, and read
// the difference.
var update = flag.Bool("update", false, "write testdata/*.golden.yaml")

// readInstallation decodes the spec of an Installation.
func readInstallation(t *testing.T, spec string) *v1alpha1.Installation {
	t.Helper()
	i := &v1alpha1.Installation{}
	if err := yaml.UnmarshalStrict([]byte(spec), &i.Spec); err != nil {
		t.Fatal(err)
	}
	return i
}

// Each Installation in testdata has its workloads beside it, and of the other objects the names.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.spec.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("find Installations: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			spec, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := New(readInstallation(t, string(spec)))
			if err != nil {
				t.Fatal(err)
			}
			got := printPlan(t, plan)
			golden := strings.TrimSuffix(file, ".spec.yaml") + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the objects differ (-golden +rendered):\n%s", diff)
			}
		})
	}
}

// printPlan prints the workloads and bindings, and the names of the other objects, in their order.
func printPlan(t *testing.T, plan *Plan) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, o := range plan.Objects {
		b.WriteString("# " + o.GetKind() + " " + o.GetName() + "\n")
		if !slices.Contains([]string{"DaemonSet", "Deployment"}, o.GetKind()) {
			continue
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
		b.WriteString("---\n")
	}
	return b.Bytes()
}

// Definitions come first, policies before programs, and the node daemon before the controller.
func TestOrder(t *testing.T) {
	t.Parallel()
	plan, err := New(readInstallation(t, "parts: {placementAgent: {enabled: true, cluster: east}}"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range plan.Objects {
		kind := o.GetKind()
		if kind == "Deployment" {
			kind = o.GetName()
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	before := func(first, second string) {
		t.Helper()
		if i, j := slices.Index(kinds, first), slices.Index(kinds, second); i < 0 || j < 0 || i > j {
			t.Errorf("want %s before %s: got %v", first, second, kinds)
		}
	}
	before("CustomResourceDefinition", "Namespace")
	before("Namespace", "ServiceAccount")
	before("ValidatingAdmissionPolicyBinding", "ClusterRole")
	before("ValidatingAdmissionPolicyBinding", "RoleBinding")
	before("RoleBinding", "DaemonSet")
	before("ValidatingAdmissionPolicyBinding", "DaemonSet")
	before("DaemonSet", "patchbay-controller")
	before("ValidatingAdmissionPolicyBinding", "patchbay-agent")
	before("patchbay-controller", "ValidatingWebhookConfiguration")
	before("ValidatingWebhookConfiguration", "PodDisruptionBudget")
}

// The same Installation must have the same hashes: other ones would replace all Pods.
func TestSameInput(t *testing.T) {
	t.Parallel()
	spec := "parts: {node: {template: {metadata: {annotations: {a: b, c: d, e: f}}}}}"
	first, err := New(readInstallation(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	second, err := New(readInstallation(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(printPlan(t, first), printPlan(t, second)); diff != "" {
		t.Error(diff)
	}
	other, err := New(readInstallation(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if other.Node.Template == first.Node.Template || other.Controller.Template != first.Controller.Template {
		t.Errorf("hashes %+v and %+v, want another one of the node daemon only", first.Node, other.Node)
	}
}

// An operator of another version must change nothing, so that two operators do not undo each other's work.
func TestVersion(t *testing.T) {
	t.Parallel()
	if _, err := New(readInstallation(t, "version: devel")); err != nil {
		t.Errorf("the operator's own version: %v", err)
	}
	_, err := New(readInstallation(t, "version: v9.9.9"))
	if err == nil || !strings.Contains(err.Error(), "spec.version: must be devel") {
		t.Errorf("another version: got %v", err)
	}
}
