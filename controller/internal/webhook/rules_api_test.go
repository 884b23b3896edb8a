// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
)

// Every rule about a single object, checked through an API server with admission, in the text that
// kubectl prints. Fields that a tenant may not write at all are in TestTenantRules.
func TestSingleObjectRules(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	cases, manifests := map[string]networktest.RuleCase{}, []string{}
	add := func(kind, name string, tc networktest.RuleCase) {
		cases[name] = tc
		manifests = append(manifests, manifest(t, kind, ns, name, tc.Spec))
	}
	for name, tc := range networktest.Rules() {
		for _, kind := range tc.ApplicableKinds() {
			if kind != v1.KindTenantNetwork {
				add(kind, objectName(name, kind), tc)
			}
		}
	}
	// One kubectl serves all cases: it continues after a rejection, and names each object.
	out, _ := kubectl(t, env, strings.Join(manifests, "\n---\n"), "create", "--dry-run=server", "--validate=false", "-f", "-")
	if len(cases) < 150 {
		t.Errorf("%d cases, want 150", len(cases))
	}
	for name, tc := range cases {
		checkPrinted(t, out, name, tc)
	}
}

// checkPrinted checks what kubectl printed about an object.
func checkPrinted(t *testing.T, out, name string, tc networktest.RuleCase) {
	t.Helper()
	var lines []string
	accepted := false
	for line := range strings.SplitSeq(out, "\n") {
		if strings.Contains(line, "/"+name+" created") {
			accepted = true
		}
		if strings.Contains(line, `"`+name+`"`) || len(lines) > 0 && strings.HasPrefix(line, "*") {
			lines = append(lines, line)
		} else if len(lines) > 0 {
			break
		}
	}
	printed := strings.Join(lines, "\n")
	if len(tc.Refused) == 0 {
		if !accepted {
			t.Errorf("%s: %s\nkubectl: not created: %s", name, tc.Reason, printed)
		}
		return
	}
	if accepted {
		t.Errorf("%s: %s\nkubectl: created, want a rejection with %q", name, tc.Reason, tc.Refused)
	}
	for _, part := range tc.Refused {
		// kubectl quotes with backslashes where the API server puts a message in quotes.
		if !strings.Contains(strings.ReplaceAll(printed, `\"`, `"`), part) {
			t.Errorf("%s: %s\nkubectl printed %q, want %q in it", name, tc.Reason, printed, part)
		}
	}
}

// objectName returns a valid name for a case.
func objectName(name, kind string) string {
	return strings.ToLower(strings.ReplaceAll(name, "/", ".") + "." + kind)
}

func manifest(t *testing.T, kind, namespace, name, spec string) string {
	t.Helper()
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatalf("spec of the test: %v\n%s", err, spec)
	}
	if _, named := fields["NetworkID"]; !named {
		fields["NetworkID"] = "net"
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(kind))
	u.SetName(name)
	if kind != v1.KindClusterNetwork {
		u.SetNamespace(namespace)
	}
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The same holds for TenantConfigs.
func TestTenantConfigRules(t *testing.T) {
	env := start(t)
	cases, manifests := map[string]networktest.RuleCase{}, []string{}
	for name, tc := range networktest.TenantConfigRules() {
		full := objectName("rule."+name, "tenantconfig")
		u := object(t, "TenantConfig", "", full, tc.Spec)
		// The TenantConfig is for no namespace, so that it does not affect other tests.
		u.Object["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"rule": full}}
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		cases[full], manifests = tc, append(manifests, string(text))
	}
	out, _ := kubectl(t, env, strings.Join(manifests, "\n---\n"), "create", "--dry-run=server", "--validate=false", "-f", "-")
	for name, tc := range cases {
		checkPrinted(t, out, name, tc)
	}
}
