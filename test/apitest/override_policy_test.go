// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// Only people who may write policies, or use the clusters of an object, override an admin's policy by annotations of an
// object. Only people who write Clusters let it leave a cluster before those of others.
func TestOverridesPolicy(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	base, err := source.Path("deployments/placement/hub")
	if err != nil {
		t.Fatal(err)
	}
	env.Kubectl(t, "apply", "--kustomize", base)
	ns := env.Namespace(t)
	env.Kubectl(t, "create", "role", "deployments", "--namespace="+ns, "--verb=*", "--resource=deployments.apps,deployments.apps/status")
	names := []string{"east", "b", "c", "d", "e", "f", "g", "h", "i"}
	if err := env.Client.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"placement.patchbay.io"}, Resources: []string{"clusters"}, ResourceNames: names, Verbs: []string{"use"}}},
	}); err != nil {
		t.Fatal(err)
	}
	users := map[string]client.WithWatch{"admin": env.Client}
	for _, name := range []string{"ci", "editor", "user", "infrastructure"} {
		env.Kubectl(t, "create", "rolebinding", name, "--namespace="+ns, "--role=deployments", "--user="+name)
		users[name] = env.As(t, apitest.Tenant(name))
	}
	env.Kubectl(t, "create", "rolebinding", "policies", "--namespace="+ns, "--clusterrole=patchbay-edit", "--user=editor")
	env.Kubectl(t, "create", "clusterrolebinding", "east", "--clusterrole=east", "--user=user")
	env.Kubectl(t, "create", "clusterrolebinding", "infrastructure", "--clusterrole=patchbay-infrastructure", "--user=infrastructure")

	deployment := func(name string, annotations map[string]string) *unstructured.Unstructured {
		container := map[string]any{"name": "c", "image": "registry.example/app:1"}
		labels := map[string]any{"app": name}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{container}}},
		}}}
		o.SetNamespace(ns)
		o.SetName(name)
		o.SetAnnotations(annotations)
		return o
	}
	const conflict, onDelete, priority, clusters = v1alpha1.ConflictAnnotation, v1alpha1.OnDeleteAnnotation, v1alpha1.DrainPriorityAnnotation, v1alpha1.ClustersAnnotation
	const adopt, orphan = conflict + "=Adopt", onDelete + "=Orphan"
	eventually(t, "the policy is in force, and rights are known", func() error {
		if err := users["ci"].Create(t.Context(), deployment("new", map[string]string{onDelete: "Orphan"}), client.DryRunAll); err == nil || !strings.Contains(err.Error(), onDelete) {
			return fmt.Errorf("ci: got %w, want it forbidden by the policy", err)
		}
		for who, key := range map[string]string{"editor": onDelete, "infrastructure": priority} {
			if err := users[who].Create(t.Context(), deployment("new", map[string]string{key: "1"}), client.DryRunAll); err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
		}
		return users["user"].Create(t.Context(), deployment("new", map[string]string{clusters: "east"}), client.DryRunAll)
	})
	plain, owned := deployment("plain", nil), deployment("owned", map[string]string{onDelete: "Orphan", conflict: "Adopt", priority: "100"})
	inEast, inWest := deployment("in-east", map[string]string{clusters: "east"}), deployment("in-west", map[string]string{clusters: "east=2,b=1,c,d,west"})
	inEight, inNine := deployment("in-eight", map[string]string{clusters: strings.Join(names[:8], ",")}), deployment("in-nine", map[string]string{clusters: strings.Join(names, ",")})
	for _, o := range []client.Object{plain, owned, inEast, inWest, inEight, inNine} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		reason, who string
		of          *unstructured.Unstructured // nil: the object is created
		set         string
		refused     string
	}{
		"import":              {"A user of the Cluster imports into it.", "user", nil, clusters + "=east " + adopt, ""},
		"import existing":     {"The hub has the object for the Cluster.", "user", inEast, adopt, ""},
		"import editor":       {"A Placement of the namespace could say the same.", "editor", nil, adopt, ""},
		"import elsewhere":    {"The Cluster must be named.", "user", nil, adopt, conflict},
		"export":              {"The object runs where the user may place it.", "user", inEast, orphan, ""},
		"export from eight":   {"The user may name as many.", "user", inEight, orphan, ""},
		"export from nine":    {"The user may not name as many.", "user", inNine, orphan, onDelete},
		"export from west":    {"One of the Clusters is another user's.", "user", inWest, orphan, onDelete},
		"export editor":       {"A Placement of the namespace could say the same.", "editor", plain, orphan, ""},
		"export by policy":    {"An admin's policy has placed it.", "user", plain, orphan, onDelete},
		"ci orphans":          {"It would escape the hub's quotas.", "ci", nil, orphan, onDelete},
		"ci orphans in east":  {"An admin has placed it.", "ci", inEast, orphan, onDelete},
		"ci adopts":           {"The hub's half of the permission is the policy's.", "ci", plain, adopt, conflict},
		"ci changes":          {"A value that is there is no permission for another one.", "ci", owned, onDelete + "=Delete", onDelete},
		"ci edits":            {"Values that do not change need no right.", "ci", owned, "other=1 " + orphan + " " + adopt + " " + priority + "=100", ""},
		"ci removes":          {"The policies are in force again.", "ci", owned, onDelete + "- " + conflict + "- " + priority + "-", ""},
		"ci leaves last":      {"No other object waits for it.", "ci", plain, priority + "=-1", ""},
		"ci at 0":             {"It is the default.", "ci", plain, priority + "=0", ""},
		"ci goes first":       {"Objects of others would wait.", "ci", plain, priority + "=2147483647", priority},
		"ci goes before":      {"A sign and zeros change nothing.", "ci", nil, priority + "=+01", priority},
		"ci rises":            {"The permission was for 100.", "ci", owned, priority + "=101", priority},
		"ci misspells":        {"The hub reports the value.", "ci", plain, priority + "=soon", ""},
		"editor goes first":   {"Its Placements are for one namespace.", "editor", plain, priority + "=1", priority},
		"infrastructure":      {"Who drains a cluster orders the objects.", "infrastructure", plain, priority + "=100", ""},
		"admin does anything": {"An admin may.", "admin", plain, adopt + " " + orphan + " " + priority + "=1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, patch := map[string]string{}, []string{}
			for one := range strings.FieldsSeq(tc.set) {
				key, value, isSet := strings.Cut(one, "=")
				if set[key] = value; isSet {
					patch = append(patch, fmt.Sprintf("%q:%q", key, value))
				} else {
					patch = append(patch, fmt.Sprintf("%q:null", strings.TrimSuffix(key, "-")))
				}
			}
			check := func(what string, err error) {
				t.Helper()
				if tc.refused == "" && err != nil {
					t.Errorf("%s\n%s: got %v, want it accepted", tc.reason, what, err)
				}
				if tc.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "metadata.annotations["+tc.refused+"]") || !strings.Contains(err.Error(), "ask for the verb")) {
					t.Errorf("%s\n%s: got %v, want it forbidden for %s", tc.reason, what, err, tc.refused)
				}
			}
			if tc.of == nil {
				check("create", users[tc.who].Create(t.Context(), deployment("new", set), client.DryRunAll))
				return
			}
			merge := mergePatch(`{"metadata":{"annotations":{` + strings.Join(patch, ",") + `}}}`)
			check("patch", users[tc.who].Patch(t.Context(), tc.of.DeepCopy(), merge, client.DryRunAll))
			check("patch of status", users[tc.who].Status().Patch(t.Context(), tc.of.DeepCopy(), merge, client.DryRunAll))
		})
	}
}
