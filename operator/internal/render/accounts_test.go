// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// subjectsOf returns the names of a binding's subjects.
func subjectsOf(t *testing.T, plan *Plan, kind, name string) []string {
	t.Helper()
	i := slices.IndexFunc(plan.Objects, func(o Object) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		t.Fatalf("the plan has no %s %s", kind, name)
	}
	subjects, _, err := unstructured.NestedSlice(plan.Objects[i].Object, "subjects")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range subjects {
		subject, _ := s.(map[string]any)
		names = append(names, fmt.Sprint(subject["namespace"], "/", subject["name"]))
	}
	return names
}

// While Pods run with an earlier account, they keep the rights of their part, and get no others.
func TestWithAccounts(t *testing.T) {
	t.Parallel()
	const own = Namespace + "/"
	cases := map[string]struct {
		reason           string
		running          map[string][]string
		node, controller []string
	}{
		"Settled":    {"all Pods have the account", map[string][]string{nodeName: {"mine", "mine"}, controllerName: {controllerName}}, []string{own + "mine"}, []string{own + controllerName}},
		"RollOut":    {"41 of 42 nodes run with the earlier account", map[string][]string{nodeName: {nodeName, "mine", nodeName}, controllerName: {controllerName}}, []string{own + "mine", own + nodeName}, []string{own + controllerName}},
		"Twice":      {"the account changes again, before the end", map[string][]string{nodeName: {nodeName, "other", "mine"}}, []string{own + "mine", own + "other", own + nodeName}, []string{own + controllerName}},
		"Waiting":    {"the controller waits for the nodes", map[string][]string{controllerName: {"east"}}, []string{own + "mine"}, []string{own + controllerName, own + "east"}},
		"OtherParts": {"an account that is another part's now must not join both parts", map[string][]string{nodeName: {controllerName}, controllerName: {"mine"}}, []string{own + "mine"}, []string{own + controllerName}},
		"Nothing":    {"nothing runs yet", nil, []string{own + "mine"}, []string{own + controllerName}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := New(readInstallation(t, "parts: {node: {template: {spec: {serviceAccountName: mine}}}}"))
			if err != nil {
				t.Fatal(err)
			}
			got := plan.WithAccounts(tc.running)
			for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
				if diff := cmp.Diff(tc.node, subjectsOf(t, got, kind, nodeName)); diff != "" {
					t.Errorf("%s: %s of the node daemon (-want +got):\n%s", tc.reason, kind, diff)
				}
				if diff := cmp.Diff(tc.controller, subjectsOf(t, got, kind, controllerName)); diff != "" {
					t.Errorf("%s: %s of the controller (-want +got):\n%s", tc.reason, kind, diff)
				}
			}
			if names := subjectsOf(t, plan, "ClusterRoleBinding", nodeName); len(names) != 1 {
				t.Errorf("%s: the plan itself has changed: %v", tc.reason, names)
			}
		})
	}
}

// The image of the Pods is in an annotation, whatever a template says, because admission may rewrite the image.
func TestImageAnnotation(t *testing.T) {
	t.Parallel()
	got := renderedTemplate(t, "{metadata: {annotations: {operator.patchbay.io/image: other}}, spec: {containers: [{name: patchbayd, image: \"registry.example/patchbayd:1\"}]}}")
	if image, _, _ := unstructured.NestedString(got, "metadata", "annotations", ImageAnnotation); image != "registry.example/patchbayd:1" {
		t.Errorf("got %q, want the image of the program", image)
	}
}

// A daemon must be ready for a while before Kubernetes replaces the next one.
func TestMinReady(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"", "parts: {node: {updateStrategy: {type: OnDelete}}}"} {
		plan, err := New(readInstallation(t, spec))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(plan.Objects, func(o Object) bool { return o.GetKind() == "DaemonSet" })
		if seconds, _, _ := unstructured.NestedInt64(plan.Objects[i].Object, "spec", "minReadySeconds"); seconds != 30 || plan.Node.MinReady.Seconds() != 30 {
			t.Errorf("%q: got %d s and %s, want 30 s", spec, seconds, plan.Node.MinReady)
		}
	}
}
