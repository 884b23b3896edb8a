// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/test/source"
)

// readManifest decodes the objects of a kind in a file of deployments/operator.
func readManifest[T any](t *testing.T, file, kind string) []T {
	t.Helper()
	path, err := source.Path("deployments", "operator", file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if !bytes.Contains(document, []byte("\nkind: "+kind+"\n")) {
			continue
		}
		var o T
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// The operator may create and change each object that it can render, under its name only, and remove all but
// namespaces. Networks, DanmEps and NodeNetworks have any name.
func TestRightsFitTheObjects(t *testing.T) {
	t.Parallel()
	i := &v1alpha1.Installation{}
	i.Spec.Parts.PlacementAgent.Enabled, i.Spec.Parts.PlacementAgent.Cluster = true, "east"
	plan, err := render.New(i)
	if err != nil {
		t.Fatal(err)
	}
	clusterRules := readManifest[rbacv1.ClusterRole](t, "rbac.yaml", "ClusterRole")[0].Rules
	var ownRules []rbacv1.PolicyRule
	for _, r := range readManifest[rbacv1.Role](t, "rbac.yaml", "Role") {
		if r.Namespace == render.Namespace {
			ownRules = r.Rules
		}
	}
	for _, o := range plan.Objects {
		rules := clusterRules
		if o.GetNamespace() == render.Namespace {
			rules = slices.Concat(clusterRules, ownRules)
		}
		verbs := []string{"get", "create", "patch", "delete"}
		switch o.GetKind() {
		case "Namespace":
			verbs = verbs[:3]
			if allows(rules, "delete", o) {
				t.Errorf("the operator may delete %s %s", o.GetKind(), o.GetName())
			}
		case "ClusterRole", "Role":
			verbs = append(verbs, "escalate", "bind")
		case "CustomResourceDefinition":
			if plural, group, _ := strings.Cut(o.GetName(), "."); !lists(clusterRules, plural, group) {
				t.Errorf("the operator may not list %s, whose finalizers an uninstallation names", o.GetName())
			}
		}
		for _, verb := range verbs {
			if !allows(rules, verb, o) {
				t.Errorf("the operator may not %s %s %s", verb, o.GetKind(), o.GetName())
			}
		}
	}
	for _, r := range slices.Concat(clusterRules, ownRules) {
		writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
		free := []string{"installations/status", "events", "tokenreviews", "subjectaccessreviews", "clusternetworks", "danmeps", "nodenetworks"}
		if writes && len(r.ResourceNames) == 0 && !slices.Contains(free, r.Resources[0]) {
			t.Errorf("rule %+v must name its objects", r)
		}
	}
}

// allows reports whether rules allow a verb on an object by its name.
func allows(rules []rbacv1.PolicyRule, verb string, o render.Object) bool {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, plural.Group) && slices.Contains(r.Resources, plural.Resource) &&
			slices.Contains(r.Verbs, verb) && slices.Contains(r.ResourceNames, o.GetName())
	})
}

// lists reports whether rules allow to list all objects of a resource.
func lists(rules []rbacv1.PolicyRule, plural, group string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, plural) && slices.Contains(r.Verbs, "list") && len(r.ResourceNames) == 0
	})
}

// The program accepts the flags of its manifest, and listens on the ports there.
func TestManifestFits(t *testing.T) {
	t.Parallel()
	c := readManifest[appsv1.Deployment](t, "deployment.yaml", "Deployment")[0].Spec.Template.Spec.Containers[0]
	o, err := parseOptions(append(c.Args, "--namespace=x"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(o.healthAddress, ":9647") || c.Ports[0].ContainerPort != 9647 || !strings.HasSuffix(o.secureMetrics.Address, ":9648") || c.Ports[1].ContainerPort != 9648 {
		t.Errorf("addresses %s and %s, ports %v", o.healthAddress, o.secureMetrics.Address, c.Ports)
	}
}

func TestOptions(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Version":     {"it needs nothing", []string{"--version"}, ""},
		"NoNamespace": {"the Lease is in it", nil, "flag --namespace: must not be empty"},
		"NoLeader":    {"a single replica needs no Lease", []string{"--leader-elect=false"}, ""},
		"Argument":    {"a flag without dashes", []string{"--namespace=x", "debug"}, "arguments: must be none"},
		"Unknown":     {"a flag of another version", []string{"--nonsense"}, "unknown flag"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(tc.args, io.Discard)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
