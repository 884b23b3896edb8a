// SPDX-License-Identifier: Apache-2.0

package works

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// made reads a manifest of that resource from JSON.
func made(t *testing.T, resource, object string) desiredObject {
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
		"Allowed":       {"An ordinary kind.", Guard{}, "configmaps", object("v1", "ConfigMap", "n"), ""},
		"Listed":        {"The admin's list has it.", some, "configmaps", object("v1", "ConfigMap", "n"), ""},
		"Unlisted":      {"And not this one.", some, "secrets", object("v1", "Secret", "n"), "--allow"},
		"Custom":        {"RBAC decides on custom kinds.", Guard{}, "widgets", object("test.example.com/v1", "Widget", "n"), ""},
		"KubeSystem":    {"The cluster's own.", some, "configmaps", object("v1", "ConfigMap", "kube-system"), "namespace kube-system"},
		"KubePublic":    {"All of these names are Kubernetes'.", Guard{}, "configmaps", object("v1", "ConfigMap", "kube-public"), "namespace kube-public"},
		"Own":           {"The agent's credentials are there.", some, "configmaps", object("v1", "ConfigMap", "agents"), "namespace agents"},
		"System":        {"The node daemon is there.", some, "configmaps", object("v1", "ConfigMap", "patchbay-system"), "namespace patchbay-system"},
		"RightsNever":   {"Whatever the list says.", some, "roles", object("rbac.authorization.k8s.io/v1", "Role", "n"), "own admin"},
		"Definitions":   {"They are code in the control plane.", Guard{}, "customresourcedefinitions", object("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""), "own admin"},
		"Nodes":         {"Machines.", Guard{}, "nodes", object("v1", "Node", ""), "own admin"},
		"Namespaces":    {"The agent makes them itself.", Guard{}, "namespaces", object("v1", "Namespace", ""), "own admin"},
		"Volumes":       {"A volume may be any path of a node.", Guard{}, "persistentvolumes", object("v1", "PersistentVolume", ""), "no kind of ordinary workloads"},
		"Slices":        {"Traffic to wherever they say.", Guard{}, "endpointslices", object("discovery.k8s.io/v1", "EndpointSlice", "n"), "no kind of ordinary workloads"},
		"Leases":        {"Somebody else would lead.", Guard{}, "leases", object("coordination.k8s.io/v1", "Lease", "n"), "no kind of ordinary workloads"},
		"ListedLeases":  {"Unless the admin says so.", some, "leases", object("coordination.k8s.io/v1", "Lease", "n"), ""},
		"TenantConfigs": {"The netadmin's.", Guard{}, "tenantconfigs", object("danm.io/v1", "TenantConfig", ""), "no kind of ordinary workloads"},
		"Secret":        {"Any other Secret.", Guard{}, "secrets", fmt.Sprintf(token, "", "Opaque"), ""},
		"Token":         {"The cluster would fill it with its account's token.", Guard{}, "secrets", fmt.Sprintf(token, "", "kubernetes.io/service-account-token"), "type:"},
		"TokenAdopted": {
			"Of one that is there already the type need not be repeated.", Guard{}, "secrets",
			fmt.Sprintf(token, `,"annotations":{"kubernetes.io/service-account.name":"admin"}`, ""), "type:",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.guard.refusalMessage(made(t, tc.resource, tc.object)); (got == "") != (tc.refused == "") || !strings.Contains(got, tc.refused) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.refused)
			}
		})
	}
}

// Wherever an object says as whom its Pods run, it is found.
func TestAccounts(t *testing.T) {
	t.Parallel()
	const meta = `"metadata":{"name":"a","namespace":"n","annotations":{"serviceAccountName":"no"}}`
	cases := map[string]struct {
		reason, resource, object string
		want                     []accountReference
	}{
		"Pod":         {"Itself.", "pods", `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{"serviceAccountName":"x"}}`, []accountReference{{"spec.serviceAccountName", "x"}}},
		"Deprecated":  {"The field's old name works still.", "pods", `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{"serviceAccount":"x","serviceAccountName":""}}`, []accountReference{{"spec.serviceAccount", "x"}}},
		"Default":     {"Every namespace has it.", "pods", `{"apiVersion":"v1","kind":"Pod",` + meta + `,"spec":{"serviceAccountName":"default"}}`, nil},
		"Deployment":  {"A template.", "deployments", `{"apiVersion":"apps/v1","kind":"Deployment",` + meta + `,"spec":{"template":{"metadata":{"labels":{"serviceAccount":"no"}},"spec":{"serviceAccountName":"x"}}}}`, []accountReference{{"spec.template.spec.serviceAccountName", "x"}}},
		"CronJob":     {"A template in a template.", "cronjobs", `{"apiVersion":"batch/v1","kind":"CronJob",` + meta + `,"spec":{"jobTemplate":{"spec":{"template":{"spec":{"serviceAccountName":"x"}}}}}}`, []accountReference{{"spec.jobTemplate.spec.template.spec.serviceAccountName", "x"}}},
		"PodTemplate": {"One without spec.", "podtemplates", `{"apiVersion":"v1","kind":"PodTemplate",` + meta + `,"template":{"spec":{"serviceAccountName":"x"}}}`, []accountReference{{"template.spec.serviceAccountName", "x"}}},
		"Custom":      {"Anywhere in custom kinds.", "workflows", `{"apiVersion":"example.com/v1","kind":"Workflow",` + meta + `,"spec":{"steps":[{},{"serviceAccountName":"x"}]}}`, []accountReference{{"spec.steps[1].serviceAccountName", "x"}}},
		"ConfigMap":   {"Text says nothing.", "configmaps", `{"apiVersion":"v1","kind":"ConfigMap",` + meta + `,"data":{"serviceAccountName":"x"}}`, nil},
		"Networks":    {"Ours run no Pods.", "danmnets", `{"apiVersion":"danm.io/v1","kind":"DanmNet",` + meta + `,"spec":{"serviceAccount":"x"}}`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, accountReferences(made(t, tc.resource, tc.object)), cmp.AllowUnexported(accountReference{})); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A namespace that the agent makes is at least as strict as hub and cluster ask.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	type levels = map[string]v1alpha1.PodSecurityLevel
	cases := map[string]struct {
		reason string
		hub    levels
		least  v1alpha1.PodSecurityLevel
		want   map[string]string
	}{
		"Nothing":  {"The cluster's.", nil, "baseline", map[string]string{enforceLabel: "baseline"}},
		"Weaker":   {"The hub does not weaken it.", levels{"enforce": "privileged"}, "baseline", map[string]string{enforceLabel: "baseline"}},
		"Stricter": {"The hub's.", levels{"enforce": "restricted"}, "baseline", map[string]string{enforceLabel: "restricted"}},
		"Warn":     {"What only warns travels, too.", levels{"warn": "restricted", "audit": "privileged", "other": "baseline"}, "restricted", map[string]string{enforceLabel: "restricted", podSecurityPrefix + "warn": "restricted", podSecurityPrefix + "audit": "privileged"}},
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
