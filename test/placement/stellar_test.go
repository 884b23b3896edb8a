// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// KubeStellar, customisation: a property's change re-renders its own cluster only, and a
// rule that fails keeps the last good version.
func TestKubeStellarCustomisation(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	watch(t, w, ns)
	for _, name := range []string{"east", "west"} {
		w.cluster(t, name, fmt.Sprintf(`{"spec":{"properties":{"zone":"%s-1"}}}`, name))
	}
	w.apply(t, w.Hub.Client, ns, placement("two", "east, west")+`---
apiVersion: placement.patchbay.io/v1alpha1
kind: Customization
metadata: {name: zones}
spec:
  match: {kinds: [ConfigMap]}
  rules: [{path: data.zone, cel: "cluster.properties.zone"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
`)
	zone := func(cluster string) (string, string) {
		o := &corev1.ConfigMap{}
		if err := w.Clusters[cluster].Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "settings"}, o); err != nil {
			return err.Error(), ""
		}
		return o.Data["zone"], o.ResourceVersion
	}
	await := func(cluster, want string) {
		t.Helper()
		eventually(t, cluster+" has "+want, func() error {
			if got, _ := zone(cluster); got != want {
				return fmt.Errorf("has %q", got)
			}
			return nil
		})
	}
	await("east", "east-1")
	await("west", "west-1")
	_, before := zone("west")
	w.cluster(t, "east", `{"spec":{"properties":{"zone":"east-2"}}}`)
	await("east", "east-2")
	if _, after := zone("west"); after != before {
		t.Errorf("west was written for a property of east: resourceVersion %s, then %s", before, after)
	}
	bad := &v1alpha1.Customization{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "zones"}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"rules":[{"path":"data.zone","cel":"cluster.properties.nothing"}]}}`))
	if err := w.Hub.Client.Patch(t.Context(), bad, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Assignment says what is wrong", func() error {
		a, err := w.assignment(t.Context(), ns, "ConfigMap", "settings")
		if err != nil {
			return err
		}
		for _, c := range a.Status.Conditions {
			if c.Type == v1alpha1.ConditionRendered && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonInvalidRule {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", a.Status.Conditions)
	})
	await("east", "east-2")
	await("west", "west-1")
}

// KubeStellar, status: exact for one cluster, a summary for several.
func TestKubeStellarExactAndSummary(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	watch(t, w, ns)
	w.apply(t, w.Hub.Client, ns, deployment("one", 2, "east", "1s")+"---\n"+deployment("two", 4, "east,west", "1s"))
	exact := w.available(t, ns, "one", 2)
	eventually(t, "the hub has east's status, deep-equal but for the generation", func() error {
		there := &appsv1.Deployment{}
		if err := w.Clusters["east"].Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "one"}, there); err != nil {
			return err
		}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(exact), exact); err != nil {
			return err
		}
		there.Status.ObservedGeneration = exact.Generation
		if diff := cmp.Diff(there.Status, exact.Status); diff != "" {
			return fmt.Errorf("-east +hub\n%s", diff)
		}
		return nil
	})
	sum := w.available(t, ns, "two", 4)
	if sum.Status.Replicas != 4 || sum.Status.ReadyReplicas != 4 || sum.Status.UpdatedReplicas != 4 {
		t.Errorf("summary: got %+v, want 4 of all", sum.Status)
	}
	for _, c := range sum.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status != corev1.ConditionTrue {
			t.Errorf("Available: got %+v", c)
		}
	}
}

// KubeStellar, separation: who writes workloads cannot write the inventory, who writes
// the inventory need not write workloads; all works so. That our programs only read the
// inventory is what the watcher checks in every test.
func TestKubeStellarSeparation(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	watch(t, w, ns)
	rule := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"*"}}
	}
	infra := w.user(t, "infra-"+ns, "", rule(v1alpha1.GroupName, "clusters"))
	dev := w.user(t, "dev-"+ns, ns, rule("apps", "deployments"), rule(v1alpha1.GroupName, "placements"))
	eventually(t, "the rights are known", func() error {
		return dev.List(t.Context(), &appsv1.DeploymentList{}, client.InNamespace(ns))
	})
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"tier":"gold"}}}`))
	eventually(t, "the infrastructure person labels a Cluster", func() error { return infra.Patch(t.Context(), cluster, label) })
	if err := dev.Patch(t.Context(), cluster, label); !apierrors.IsForbidden(err) {
		t.Errorf("a developer writes the inventory: got %v, want forbidden", err)
	}
	if err := infra.List(t.Context(), &appsv1.DeploymentList{}, client.InNamespace(ns)); !apierrors.IsForbidden(err) {
		t.Errorf("an infrastructure person reads workloads: got %v, want forbidden", err)
	}
	w.apply(t, dev, ns, `
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: gold}
spec: {clusters: {selector: {matchLabels: {tier: gold}}}}
---
`+plain("web", 2))
	w.awaitReplicas(t, ns, map[string]int32{"east": 2})
	w.available(t, ns, "web", 2)
}

// user makes a user at the hub with these rights, in a namespace or everywhere.
func (w *world) user(t *testing.T, name, ns string, rules ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: ns}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	objects := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}},
	}
	if ns != "" {
		objects = []client.Object{
			&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}},
		}
	}
	for _, o := range objects {
		if err := w.Hub.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(w.Hub.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	c, err := client.New(config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
