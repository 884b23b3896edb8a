// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// An Installation with a full template is stored as it was written, all parts are applied over what
// kubectl has installed before, and the API server drops nothing of it.
func TestInstall(t *testing.T) {
	c := newCluster(t)
	startWorkloads(t, c, 3)
	startOperator(t, c)
	full, err := os.ReadFile("internal/render/testdata/full.template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var template map[string]any
	if err := yaml.Unmarshal(full, &template); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(map[string]any{"parts": map[string]any{
		"node": map[string]any{"template": template}, "placementAgent": map[string]any{"enabled": true, "cluster": "east"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	i := c.write(t, string(spec))
	stored := i.DeepCopy()
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(i), stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, mustJSON(t, template)), decode(t, stored.Spec.Parts.Node.Template.Raw)); diff != "" {
		t.Errorf("the API server changed the template (-written +stored):\n%s", diff)
	}
	c.await(t, v1alpha1.ConditionValid, v1alpha1.ReasonValid)
	c.await(t, v1alpha1.ConditionApplied, v1alpha1.ReasonApplied)
	if got := c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady); got.Status != metav1.ConditionTrue {
		t.Errorf("Ready: got %+v", got)
	}
	plan, err := render.New(stored)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range plan.Objects {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			continue
		}
		requireFields(t, o.GetKind()+" "+o.GetName(), o.Object, live.Object)
	}
	repairsDrift(t, c)
	prunesOwnObjects(t, c)
}

// mustJSON returns a value as JSON.
func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// requireFields requires that what was applied is there. Lists have the same length; the API server adds fields.
func requireFields(t *testing.T, path string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: got %v, want an object", path, got)
			return
		}
		for key, value := range w {
			if _, ok := g[key]; !ok && isEmpty(value) {
				continue
			}
			requireFields(t, path+"."+key, value, g[key])
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			t.Errorf("%s: got %d items, want %d", path, len(g), len(w))
			return
		}
		for i := range w {
			requireFields(t, fmt.Sprintf("%s[%d]", path, i), w[i], g[i])
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) && !strings.HasSuffix(path, ".description") {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	case bool:
		return !v
	}
	return false
}

// repairsDrift changes and removes objects, as a user does by mistake.
func repairsDrift(t *testing.T, c *cluster) {
	t.Helper()
	ctx := t.Context()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "patchbayd"}}
	if err := c.admin.Delete(ctx, role); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "-n", render.Namespace, "label", "daemonset", "patchbayd", "team=network")
	c.Kubectl(t, "-n", render.Namespace, "patch", "deployment", "patchbay-controller", "--type=merge", "-p", `{"spec":{"template":{"spec":{"hostNetwork":false}}}}`)
	c.Kubectl(t, "label", "namespace", render.Namespace, "pod-security.kubernetes.io/enforce-", "mine=1")
	eventually(t, "the repair", func(ctx context.Context) error {
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(role), role); err != nil {
			return err
		}
		d := &appsv1.Deployment{}
		if err := c.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbay-controller"}, d); err != nil {
			return err
		}
		ns := &corev1.Namespace{}
		if err := c.admin.Get(ctx, client.ObjectKey{Name: render.Namespace}, ns); err != nil {
			return err
		}
		if !d.Spec.Template.Spec.HostNetwork || ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
			return fmt.Errorf("hostNetwork %v, labels %v", d.Spec.Template.Spec.HostNetwork, ns.Labels)
		}
		if ns.Labels["mine"] != "1" {
			return fmt.Errorf("the label of a user is gone: %v", ns.Labels)
		}
		return nil
	})
	ds := &appsv1.DaemonSet{}
	if err := c.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, ds); err != nil {
		t.Fatal(err)
	}
	if ds.Labels["team"] != "network" {
		t.Errorf("labels %v, want the user's to stay", ds.Labels)
	}
	if len(role.Rules) == 0 {
		t.Error("the ClusterRole has no rules")
	}
}

// prunesOwnObjects switches the agent off: its objects go, except definitions, namespaces, and what the operator
// has not made.
func prunesOwnObjects(t *testing.T, c *cluster) {
	t.Helper()
	copied := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "copied", Labels: map[string]string{render.InstallationLabel: v1alpha1.InstallationName}}}
	if err := c.admin.Create(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	c.write(t, "{}")
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	eventually(t, "the agent to be gone", func(ctx context.Context) error {
		for _, o := range []client.Object{&appsv1.Deployment{}, &rbacv1.Role{}} {
			err := c.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbay-agent"}, o)
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T: %w", o, err)
			}
		}
		err := c.admin.Get(ctx, client.ObjectKey{Name: "patchbay-agent-kinds"}, &rbacv1.ClusterRole{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("ClusterRole: %w", err)
		}
		return nil
	})
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); err != nil {
		t.Errorf("a ClusterRole of a user: %v", err)
	}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "patchbay-agent-secrets"}, &corev1.Namespace{}); err != nil {
		t.Errorf("the namespace with copies of Secrets: %v", err)
	}
	c.Kubectl(t, "get", "crd", "appliedworks.placement.patchbay.io")
}
