// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// The operator takes over what kubectl has installed: also the Deployment with an update strategy that
// Kubernetes does not accept together with that of the Installation.
func TestTakeOver(t *testing.T) {
	c := newCluster(t)
	folder, err := source.Path("deployments", "workloads")
	if err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "apply", "--server-side", "--force-conflicts", "--kustomize", folder)
	c.Kubectl(t, "-n", render.Namespace, "label", "deployment", "patchbay-controller", "team=network")
	startWorkloads(t, c, 2)
	startReplica(t, c, true)
	c.write(t, "parts: {controller: {updateStrategy: {type: Recreate}}}")
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	d := &appsv1.Deployment{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: render.Namespace, Name: "patchbay-controller"}, d); err != nil {
		t.Fatal(err)
	}
	if d.Spec.Strategy.RollingUpdate != nil || d.Labels["team"] != "network" {
		t.Errorf("strategy %+v, labels %v, want Recreate only, and the label of people", d.Spec.Strategy, d.Labels)
	}
	c.write(t, "{}")
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
}

// The oldest Kubernetes accepts the definition, keeps a full template, and rejects what the rules say.
// It takes 12 CPU seconds, because it starts an API server of its own.
func TestOldestKubernetes(t *testing.T) {
	env := apitest.StartOldest(t)
	file, err := source.Path("deployments", "operator", "crds", "operator.patchbay.io_installations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	env.Kubectl(t, "apply", "--server-side", "-f", file)
	template, err := os.ReadFile(filepath.Join("internal", "render", "testdata", "full.template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	full := map[string]any{}
	if err := yaml.Unmarshal(template, &full); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, object, spec, want string }{
		{"Full", "patchbay", string(mustJSON(t, map[string]any{"parts": map[string]any{"controller": map[string]any{"template": full}}})), ""},
		{"Directives", "patchbay", `{parts: {node: {template: {spec: {volumes: [{name: x, $patch: delete}], securityContext: {$patch: replace}}}}}}`, ""},
		{"Values", "patchbay", `{registry: "registry.example:5000/a/b", parts: {node: {updateStrategy: {maxUnavailable: 5%}}, controller: {updateStrategy: {maxSurge: 0, maxUnavailable: 1}}}}`, ""},
		{"SecondName", "other", `{}`, "metadata.name: must be patchbay"},
		{"NoCluster", "patchbay", `{parts: {placementAgent: {enabled: true}}}`, "must be the name of this cluster at its hub"},
		{"None", "patchbay", `{parts: {node: {updateStrategy: {maxUnavailable: 0}}}}`, "must be a number of at least 1"},
		{"NonePercent", "patchbay", `{parts: {node: {updateStrategy: {maxUnavailable: 0%}}}}`, "must be a number of at least 1"},
		{"Registry", "patchbay", `{registry: "https://registry.example"}`, "must be a registry with an optional port"},
		{"Level", "patchbay", `{logLevel: trace}`, "Unsupported value"},
		{"Empty", "patchbay", `{registry: "", imagePullPolicy: "", logLevel: "", defaultDelegate: "", parts: {node: {logLevel: "", updateStrategy: {type: ""}}}}`, ""},
		{"Delegate", "patchbay", `{defaultDelegate: 10-calico.conflist, features: {nodeConfiguration: true}}`, ""},
		{"DelegatePath", "patchbay", `{defaultDelegate: /etc/cni/net.d/10-calico.conflist}`, "must be the name of a file without its folder that ends in .conflist, .conf or .json"},
		{"DelegateEnding", "patchbay", `{defaultDelegate: 10-calico}`, "must be the name of a file without its folder"},
		{"DelegateOwn", "patchbay", `{defaultDelegate: 00-patchbay.conflist}`, "must not be Patchbay's own file"},
		{"DelegateOff", "patchbay", `{defaultDelegate: 10-calico.conflist, features: {nodeConfiguration: false}}`, "must be empty if features.nodeConfiguration is false"},
		{"NoKey", "patchbay", `{parts: {node: {template: {spec: {containers: [{image: x}]}}}}}`, "name: Required value"},
		{"Ephemeral", "patchbay", `{parts: {node: {template: {spec: {ephemeralContainers: [{name: x}]}}}}}`, `unknown field "spec.parts.node.template.spec.ephemeralContainers"`},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			spec := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.spec), &spec); err != nil {
				t.Fatal(err)
			}
			var last error
			eventually(t, "an answer", func(ctx context.Context) error {
				i := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": tc.object}, "spec": spec}}
				i.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Installation"))
				last = env.Client.Create(ctx, i, &client.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
				if apierrors.IsNotFound(last) || last != nil && strings.Contains(last.Error(), "no matches for kind") {
					return last // the kind is not served yet
				}
				return nil
			})
			if tc.want == "" && last != nil || tc.want != "" && (last == nil || !strings.Contains(last.Error(), tc.want)) {
				t.Errorf("got %v, want %q", last, tc.want)
			}
		})
	}
}
