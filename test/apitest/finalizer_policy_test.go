// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

const inUseStays = "metadata.finalizers must keep danm.io/in-use, which Patchbay removes when no Pod is attached any more: " +
	"leave it, and delete the Pods, then the network"

// usedNetwork stores a network that is in use, and has somebody else's finalizer.
func usedNetwork(t *testing.T, env *apitest.Env, kind string) *unstructured.Unstructured {
	t.Helper()
	o := newNetwork(t, kind, `{}`)
	o.SetFinalizers([]string{v1.InUseFinalizer, "example.com/other"})
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// netadmin lets somebody change networks by RBAC, and waits until that holds.
func netadmin(t *testing.T, env *apitest.Env, user string) client.WithWatch {
	t.Helper()
	bind := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("netadmin")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-netadmin"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
	}
	if err := env.Client.Create(t.Context(), bind); err != nil {
		t.Fatal(err)
	}
	c := env.As(t, apitest.Identity{UserName: user, Groups: []string{"system:authenticated"}})
	eventually(t, "somebody has the rights of a netadmin", func() error {
		return c.Create(t.Context(), newNetwork(t, v1.KindClusterNetwork, `{}`), client.DryRunAll)
	})
	return c
}

func mergePatch(text string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(text))
}

// finalizerWrite is a write of a network that is in use.
type finalizerWrite struct {
	reason  string
	write   func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error
	refused bool
}

func finalizerWrites() map[string]finalizerWrite {
	patch := func(p client.Patch) func(context.Context, client.Client, *unstructured.Unstructured) error {
		return func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Patch(ctx, o, p, client.DryRunAll)
		}
	}
	return map[string]finalizerWrite{
		"Null":   {reason: "kubectl patch --type merge.", refused: true, write: patch(mergePatch(`{"metadata": {"finalizers": null}}`))},
		"Empty":  {reason: "The same.", refused: true, write: patch(mergePatch(`{"metadata": {"finalizers": []}}`))},
		"Others": {reason: "Only ours is taken off.", refused: true, write: patch(mergePatch(`{"metadata": {"finalizers": ["example.com/other"]}}`))},
		"JSON":   {reason: "kubectl patch --type json.", refused: true, write: patch(jsonPatch(`[{"op": "remove", "path": "/metadata/finalizers/0"}]`))},
		"Replaced": {reason: "kubectl replace.", refused: true, write: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			o.SetFinalizers(nil)
			return c.Update(ctx, o, client.DryRunAll)
		}},
		"Forced": {reason: "Server-side apply, by who owns nothing of it.", write: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied(o)), client.FieldOwner("me"), client.ForceOwnership, client.DryRunAll)
		}},
		"Other":   {reason: "Somebody else's finalizer is not ours.", write: patch(mergePatch(`{"metadata": {"finalizers": ["danm.io/in-use"]}}`))},
		"Ordered": {reason: "Their order means nothing.", write: patch(mergePatch(`{"metadata": {"finalizers": ["example.com/other", "danm.io/in-use"]}}`))},
		"Label":   {reason: "It takes nothing off.", write: patch(mergePatch(`{"metadata": {"labels": {"a": "b"}}}`))},
	}
}

// applied is what somebody applies who knows nothing of finalizers.
func applied(o *unstructured.Unstructured) *unstructured.Unstructured {
	a := &unstructured.Unstructured{Object: map[string]any{"spec": o.Object["spec"]}}
	a.SetGroupVersionKind(o.GroupVersionKind())
	a.SetNamespace(o.GetNamespace())
	a.SetName(o.GetName())
	return a
}

// Who may change a network may not take off what keeps its VLAN from the next tenant.
func TestOnlyPatchbayTakesOffInUse(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		somebody := netadmin(t, env, "alice")
		for _, kind := range (networktest.RuleCase{}).ApplicableKinds() {
			o := usedNetwork(t, env, kind)
			for name, tc := range finalizerWrites() {
				t.Run(name+"/"+kind, func(t *testing.T) {
					t.Parallel()
					err := tc.write(t.Context(), somebody, o.DeepCopy())
					if tc.refused != apierrors.IsInvalid(err) || !tc.refused && err != nil {
						t.Fatalf("%s\nwrite: got %v, want a refusal: %v", tc.reason, err, tc.refused)
					}
					if err != nil && !strings.Contains(err.Error(), inUseStays) {
						t.Errorf("%s\nwrite: got %q, want it to say %q", tc.reason, err, inUseStays)
					}
				})
			}
		}
	})
}

// The controller does, and cluster administrators, who may have none left that does.
func TestWhoTakesOffInUse(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		clients := map[string]client.Client{
			"controller": env.As(t, apitest.Controller()), "admin": env.Client,
		}
		for _, kind := range (networktest.RuleCase{}).ApplicableKinds() {
			o := usedNetwork(t, env, kind)
			for name, c := range clients {
				t.Run(name+"/"+kind, func(t *testing.T) {
					t.Parallel()
					take := mergePatch(`{"metadata": {"finalizers": ["example.com/other"]}}`)
					if err := c.Patch(t.Context(), o.DeepCopy(), take, client.DryRunAll); err != nil {
						t.Errorf("take it off: %v", err)
					}
				})
			}
		}
	})
}

// A namespace that goes deletes what is in it, and the garbage collector takes its own
// finalizer off; ours stays, and the controller's write is the last.
func TestInUseEndsByDeletion(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		controller := env.As(t, apitest.Controller())
		collector := env.As(t, apitest.Identity{
			UserName: "system:serviceaccount:kube-system:generic-garbage-collector",
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		}) // Kubernetes itself gives it the right to change every resource
		for name, how := range map[string]client.DeleteOption{
			"Background": client.PropagationPolicy(metav1.DeletePropagationBackground),
			"Foreground": client.PropagationPolicy(metav1.DeletePropagationForeground),
			"Orphan":     client.PropagationPolicy(metav1.DeletePropagationOrphan),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := usedNetwork(t, env, v1.KindTenantNetwork)
				if err := collector.Delete(t.Context(), o.DeepCopy(), how); err != nil {
					t.Fatal(err)
				}
				if err := collector.Patch(t.Context(), o.DeepCopy(), mergePatch(`{"metadata": {"finalizers": ["danm.io/in-use"]}}`)); err != nil {
					t.Errorf("the garbage collector takes off its own: %v", err)
				}
				if err := controller.Patch(t.Context(), o.DeepCopy(), mergePatch(`{"metadata": {"finalizers": null}}`)); err != nil {
					t.Errorf("the controller takes off ours: %v", err)
				}
				if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
					t.Errorf("afterwards: got %v, want it gone", err)
				}
			})
		}
	})
}
