// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// An overlay that moves everything to another namespace and under other names leaves
// nodes confined, and the controller not. No account's name is in a policy.
func TestPoliciesHoldInAnOverlay(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // its policies are replaced
	install(t, env, "namespace: site-networks\nnamePrefix: site-\n")
	account := func(name string) apitest.Identity {
		who := apitest.NodeDaemon("node-1")
		who.UserName = "system:serviceaccount:site-networks:site-" + name
		return who
	}
	daemon, controller := env.As(t, account("patchbayd")), env.As(t, account("patchbay-controller"))
	ns := env.Namespace(t)
	eventually(t, "the daemon has its rights", func() error {
		return daemon.Create(t.Context(), endpoint(ns, "node-1"), client.DryRunAll)
	})
	eventually(t, "the policies are in force", func() error {
		if err := daemon.Create(t.Context(), endpoint(ns, "node-2"), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a DanmEp of another node: got %w, want it forbidden", err)
		}
		return nil
	})
	n := networkWithWarmAddresses(t, env)
	if err := env.Client.Patch(t.Context(), n, mergePatch(`{"metadata": {"finalizers": ["danm.io/in-use"]}}`)); err != nil {
		t.Fatal(err)
	}
	patch := func(text string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, n.DeepCopy(), mergePatch(text), client.DryRunAll)
		}
	}
	release := patch(`{"metadata": {"finalizers": null}}`)
	steal := ipamChange(env, n, func(s *v1.IPAMStatus) { delete(s.Held, "node-2") })
	runWrites(t, daemon, map[string]daemonWrite{
		"Claim": {reason: "Its own entry.", write: ipamChange(env, n, func(s *v1.IPAMStatus) {
			s.Held["node-1"] = v1.HeldAddresses{UID: "1", Seq: 2}
		})},
		"Steal":   {reason: "Another node's entry.", refused: "node-2", write: steal},
		"Release": {reason: "Pods are attached.", refused: v1.InUseFinalizer, write: release},
		"Owner": {
			reason: "The garbage collector would delete it.", refused: "change nothing else",
			write: patch(`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "never-was", "uid": "0"}]}}`),
		},
		"Links": {reason: "Another node's.", refused: "node-2", write: func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}, client.DryRunAll)
		}},
	})
	runWrites(t, controller, map[string]daemonWrite{
		"Evict":       {reason: "It ends what nodes had that are gone.", write: steal},
		"EndDeletion": {reason: "It ends the use of networks.", write: release},
	})
}

// A hub under another name and in another namespace writes the inventory no more than one
// as installed; people do.
func TestInventoryPolicyHoldsInAnOverlay(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	base, err := source.Path("deployments/placement/hub")
	if err != nil {
		t.Fatal(err)
	}
	account := func(name string) client.WithWatch {
		return env.As(t, apitest.Identity{UserName: "system:serviceaccount:" + name, Groups: []string{"system:serviceaccounts", "system:authenticated"}})
	}
	east := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "placement.patchbay.io/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "east"},
	}}
	unschedulable := mergePatch(`{"spec": {"unschedulable": true}}`)
	// The overlay comes first: the policy of the other one would hold for it, too.
	for _, o := range []struct{ hub, overlay string }{
		{"site-hub:site-patchbay-hub", "namespace: site-hub\nnamePrefix: site-\n"}, {"patchbay-system:patchbay-hub", ""},
	} {
		hub := o.hub
		env.Kubectl(t, "apply", "--kustomize", kustomization(t, base, o.overlay))
		eventually(t, "the policy is in force for "+hub, func() error {
			if err := client.IgnoreAlreadyExists(env.Client.Create(t.Context(), east.DeepCopy())); err != nil {
				return err
			}
			err := account(hub).Patch(t.Context(), east.DeepCopy(), unschedulable, client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "the inventory is written by people") {
				return fmt.Errorf("spec: got %w, want it forbidden by the policy", err)
			}
			return nil
		})
		for what, text := range map[string]string{
			"labels": `{"metadata": {"labels": {"zone": "a"}}}`, "accepted": `{"spec": {"accepted": false}}`,
		} {
			if err := account(hub).Patch(t.Context(), east.DeepCopy(), mergePatch(text), client.DryRunAll); !apierrors.IsForbidden(err) {
				t.Errorf("%s writes %s: got %v, want it forbidden", hub, what, err)
			}
		}
		if err := account(hub).Status().Patch(t.Context(), east.DeepCopy(), mergePatch(`{"status": {"leaves": 1}}`), client.DryRunAll); err != nil {
			t.Errorf("%s writes the status: %v", hub, err)
		}
	}
	env.Kubectl(t, "create", "clusterrolebinding", "infrastructure", "--clusterrole=patchbay-infrastructure", "--user=infrastructure")
	infrastructure := env.As(t, apitest.Tenant("infrastructure"))
	for name, c := range map[string]client.Client{"infrastructure people": infrastructure, "an administrator": env.Client} {
		eventually(t, name+" write the inventory", func() error {
			return c.Patch(t.Context(), east.DeepCopy(), unschedulable, client.DryRunAll)
		})
	}
}

// kustomization writes an overlay of a folder, and returns its own.
func kustomization(t *testing.T, base, overlay string) string {
	t.Helper()
	dir := t.TempDir()
	base, err := filepath.Rel(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + base + "]\n" + overlay
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// install puts an overlay of deployments/ in place of what the API server was started with.
func install(t *testing.T, env *apitest.Env, overlay string) {
	t.Helper()
	deployments, err := source.Path("deployments")
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{
		"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy",
		"ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role", "ServiceAccount", "Namespace",
	}
	original, err := apitest.ReadManifests(deployments)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range original {
		if slices.Contains(kinds, o.GetKind()) && o.GetKind() != "Namespace" {
			if err := client.IgnoreNotFound(env.Client.Delete(t.Context(), o)); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, built := kustomization(t, deployments, overlay), t.TempDir()
	if err := os.WriteFile(filepath.Join(built, "all.yaml"), []byte(env.Kubectl(t, "kustomize", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := apitest.ReadManifests(built)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(kinds) // what others refer to comes first
	for _, kind := range kinds {
		for _, o := range objects {
			if o.GetKind() == kind {
				if err := env.Client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
