// SPDX-License-Identifier: Apache-2.0

package works

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/source"
)

// parsed returns the object of a manifest in JSON.
func parsed(t *testing.T, resource, object string) desiredObject {
	t.Helper()
	m := raw(object)
	m.Resource = resource
	got, err := parseManifest(v1alpha1.WorkSpec{}, m)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestGuard(t *testing.T) {
	t.Parallel()
	object := func(apiVersion, kind, namespace string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","namespace":%q}}`, apiVersion, kind, namespace)
	}
	some := Guard{Namespace: "agents", Resources: []string{"configmaps", "roles.rbac.authorization.k8s.io", "leases.coordination.k8s.io"}}
	const token = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"n"%s},"type":%q}`
	cases := map[string]struct {
		reason                    string
		guard                     Guard
		resource, object, refused string
	}{
		"Allowed":       {"ConfigMaps are an ordinary kind.", Guard{}, "configmaps", object("v1", "ConfigMap", "n"), ""},
		"Listed":        {"The admin's list has the kind.", some, "configmaps", object("v1", "ConfigMap", "n"), ""},
		"Unlisted":      {"The admin's list lacks the kind.", some, "secrets", object("v1", "Secret", "n"), "--allowed-resources"},
		"Custom":        {"RBAC decides on custom kinds.", Guard{}, "widgets", object("test.example.com/v1", "Widget", "n"), ""},
		"KubeSystem":    {"The namespace kube-system belongs to the cluster.", some, "configmaps", object("v1", "ConfigMap", "kube-system"), "namespace kube-system"},
		"KubePublic":    {"All namespaces with the prefix kube- belong to Kubernetes.", Guard{}, "configmaps", object("v1", "ConfigMap", "kube-public"), "namespace kube-public"},
		"Own":           {"The agent's own namespace has its credentials.", some, "configmaps", object("v1", "ConfigMap", "agents"), "namespace agents"},
		"System":        {"The node daemon runs in patchbay-system.", some, "configmaps", object("v1", "ConfigMap", "patchbay-system"), "namespace patchbay-system"},
		"RightsNever":   {"A list must not allow RBAC kinds.", some, "roles", object("rbac.authorization.k8s.io/v1", "Role", "n"), "own admin"},
		"Definitions":   {"CustomResourceDefinitions change the control plane.", Guard{}, "customresourcedefinitions", object("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""), "own admin"},
		"Nodes":         {"Nodes belong to the cluster.", Guard{}, "nodes", object("v1", "Node", ""), "own admin"},
		"Namespaces":    {"The agent creates namespaces itself.", Guard{}, "namespaces", object("v1", "Namespace", ""), "own admin"},
		"Volumes":       {"A volume may be any path of a node.", Guard{}, "persistentvolumes", object("v1", "PersistentVolume", ""), "must be one of ordinary workloads"},
		"Slices":        {"EndpointSlices can send traffic to any address.", Guard{}, "endpointslices", object("discovery.k8s.io/v1", "EndpointSlice", "n"), "must be one of ordinary workloads"},
		"Leases":        {"A Lease can change who leads.", Guard{}, "leases", object("coordination.k8s.io/v1", "Lease", "n"), "must be one of ordinary workloads"},
		"ListedLeases":  {"The admin may list a kind that is not ordinary.", some, "leases", object("coordination.k8s.io/v1", "Lease", "n"), ""},
		"TenantConfigs": {"TenantConfigs belong to the network admin.", Guard{}, "tenantconfigs", object("danm.io/v1", "TenantConfig", ""), "must be one of ordinary workloads"},
		"Secret":        {"Ordinary Secrets are allowed.", Guard{}, "secrets", fmt.Sprintf(token, "", "Opaque"), ""},
		"Token":         {"The cluster would write the token of a ServiceAccount into it.", Guard{}, "secrets", fmt.Sprintf(token, "", "kubernetes.io/service-account-token"), "type:"},
		"TokenAdopted": {
			"A manifest for an existing Secret need not repeat the type.", Guard{}, "secrets",
			fmt.Sprintf(token, `,"annotations":{"kubernetes.io/service-account.name":"admin"}`, ""), "type:",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.guard.refusalMessage(parsed(t, tc.resource, tc.object)); (got == "") != (tc.refused == "") || !strings.Contains(got, tc.refused) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.refused)
			}
		})
	}
}

// accountReferences finds all fields with the ServiceAccount of Pods.
func TestAccountReferences(t *testing.T) {
	t.Parallel()
	const meta = `"metadata":{"name":"a","namespace":"n","annotations":{"serviceAccountName":"no"}}`
	cases := map[string]struct {
		reason, resource, object string
		want                     []accountReference
	}{
		"Pod":         {"A Pod has the field in its spec.", "pods", `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{"serviceAccountName":"x"}}`, []accountReference{{"spec.serviceAccountName", "x"}}},
		"Deprecated":  {"The deprecated field still works.", "pods", `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{"serviceAccount":"x","serviceAccountName":""}}`, []accountReference{{"spec.serviceAccount", "x"}}},
		"Default":     {"Each namespace has the ServiceAccount default.", "pods", `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{"serviceAccountName":"default"}}`, nil},
		"Deployment":  {"A Deployment has a Pod template.", "deployments", `{"apiVersion":"apps/v1","kind":"Deployment",` + meta + `,"spec":{"template":{"metadata":{"labels":{"serviceAccount":"no"}},"spec":{"serviceAccountName":"x"}}}}`, []accountReference{{"spec.template.spec.serviceAccountName", "x"}}},
		"CronJob":     {"A CronJob has a nested template.", "cronjobs", `{"apiVersion":"batch/v1","kind":"CronJob",` + meta + `,"spec":{"jobTemplate":{"spec":{"template":{"spec":{"serviceAccountName":"x"}}}}}}`, []accountReference{{"spec.jobTemplate.spec.template.spec.serviceAccountName", "x"}}},
		"PodTemplate": {"A PodTemplate has no spec.", "podtemplates", `{"apiVersion":"v1","kind":"PodTemplate",` + meta + `,"template":{"spec":{"serviceAccountName":"x"}}}`, []accountReference{{"template.spec.serviceAccountName", "x"}}},
		"Custom":      {"A custom kind may have the field anywhere.", "workflows", `{"apiVersion":"example.com/v1","kind":"Workflow",` + meta + `,"spec":{"steps":[{},{"serviceAccountName":"x"}]}}`, []accountReference{{"spec.steps[1].serviceAccountName", "x"}}},
		"ConfigMap":   {"The data of a ConfigMap is no reference.", "configmaps", `{"apiVersion":"v1","kind":"ConfigMap",` + meta + `,"data":{"serviceAccountName":"x"}}`, nil},
		"Networks":    {"Networks run no Pods.", "danmnets", `{"apiVersion":"danm.io/v1","kind":"DanmNet",` + meta + `,"spec":{"serviceAccount":"x"}}`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, accountReferences(parsed(t, tc.resource, tc.object)), cmp.AllowUnexported(accountReference{})); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A namespace that the agent creates is at least as strict as hub and cluster request.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	type levels = map[string]v1alpha1.PodSecurityLevel
	cases := map[string]struct {
		reason string
		hub    levels
		least  v1alpha1.PodSecurityLevel
		want   map[string]string
	}{
		"Nothing":  {"Without a level of the hub, the cluster's applies.", nil, "baseline", map[string]string{enforceLabel: "baseline"}},
		"Weaker":   {"The hub cannot lower the cluster's level.", levels{"enforce": "privileged"}, "baseline", map[string]string{enforceLabel: "baseline"}},
		"Stricter": {"The hub may request a stricter level.", levels{"enforce": "restricted"}, "baseline", map[string]string{enforceLabel: "restricted"}},
		"Warn":     {"The modes warn and audit are applied, too.", levels{"warn": "restricted", "audit": "privileged", "other": "baseline"}, "restricted", map[string]string{enforceLabel: "restricted", podSecurityPrefix + "warn": "restricted", podSecurityPrefix + "audit": "privileged"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, podSecurityLabels(&v1alpha1.WorkSpec{PodSecurity: tc.hub}, tc.least)); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// The agent's ClusterRoles allow each kind that the guard calls ordinary: otherwise a cluster refuses what the page promises.
func TestRolesAllowOrdinaryKinds(t *testing.T) {
	t.Parallel()
	file, err := source.Path("deployments", "placement", "agent", "rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)); ; {
		role := &rbacv1.ClusterRole{}
		if err := d.Decode(role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(role.Name, "patchbay-agent-") {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				allowed[group] = append(allowed[group], rule.Resources...)
			}
		}
	}
	if len(allowed) == 0 {
		t.Fatalf("%s has no ClusterRole of kinds", file)
	}
	delete(allowed, "discovery.k8s.io") // the agent's own EndpointSlices: the hub places none
	for group, resources := range allowed {
		slices.Sort(resources)
		if diff := cmp.Diff(workloadResources(group), resources); diff != "" {
			t.Errorf("group %q: -ordinary +allowed\n%s", group, diff)
		}
	}
	for _, group := range []string{"", "apps", "autoscaling", "batch", "networking.k8s.io", "policy", "resource.k8s.io", "danm.io"} {
		if len(allowed[group]) == 0 {
			t.Errorf("group %q: no role allows any kind", group)
		}
	}
}
