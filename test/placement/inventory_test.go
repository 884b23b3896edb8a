// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// KubeStellar, separation: an infrastructure person and one with workloads, each with a
// token and the roles of deployments/placement, pass everything that is theirs and
// nothing else.
func TestKubeStellarSeparation(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	infra := w.newUserClient(t, ns, "infra", "patchbay-infrastructure", "", "")
	w.newUserClient(t, ns, "infra", "patchbay-join-tokens", metav1.NamespaceSystem, "")
	dev := w.newUserClient(t, ns, "dev", "edit", ns, "east")
	gold := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"tier-`+ns+`":"gold"}}}`))
	own := object("placement.patchbay.io/v1alpha1", "Cluster", "", "of-"+ns)
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + ns[len(ns)-6:]}}
	everybodys := object("placement.patchbay.io/v1alpha1", "ClusterPlacement", "", ns)
	policy := object("placement.patchbay.io/v1alpha1", "Placement", ns, "gold")
	policy.Object["spec"] = map[string]any{"clusters": map[string]any{"names": []any{"east"}, "selector": map[string]any{"matchLabels": map[string]any{"tier-" + ns: "gold"}}}}
	own.Object["spec"], everybodys.Object["spec"] = map[string]any{"accepted": false}, map[string]any{"clusters": map[string]any{"names": []any{"east"}}}
	eventually(t, "the rights are known", func() error {
		return errors.Join(dev.List(t.Context(), &v1alpha1.PlacementList{}, client.InNamespace(ns)),
			dev.Create(t.Context(), annotatedObject(t, ns, "ConfigMap", "east"), client.DryRunAll),
			infra.List(t.Context(), &v1alpha1.ClusterList{}), infra.Create(t.Context(), token.DeepCopy(), client.DryRunAll))
	})

	w.checkPermissions(t, infra, map[string]func(client.Client) error{
		"make a Cluster":      func(c client.Client) error { return c.Create(t.Context(), own.DeepCopy()) },
		"label a Cluster":     func(c client.Client) error { return c.Patch(t.Context(), cluster("east"), gold) },
		"see what runs where": func(c client.Client) error { return c.List(t.Context(), &v1alpha1.AssignmentList{}) },
		"see the Works":       func(c client.Client) error { return c.List(t.Context(), &v1alpha1.WorkList{}) },
		"make a join token":   func(c client.Client) error { return c.Create(t.Context(), token.DeepCopy()) },
		"take a Cluster away": func(c client.Client) error { return client.IgnoreNotFound(c.Delete(t.Context(), own.DeepCopy())) },
	}, dev)
	w.checkPermissions(t, dev, map[string]func(client.Client) error{
		"say where": func(c client.Client) error { return c.Create(t.Context(), policy.DeepCopy()) },
		"see the Deployments": func(c client.Client) error {
			return c.List(t.Context(), &appsv1.DeploymentList{}, client.InNamespace(ns))
		},
		"make a ConfigMap": func(c client.Client) error {
			return c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}})
		},
		"change objects on their way": func(c client.Client) error {
			return c.List(t.Context(), &v1alpha1.CustomizationList{}, client.InNamespace(ns))
		},
	}, infra)
	w.checkPermissions(t, nil, map[string]func(client.Client) error{
		"place everybody's objects": func(c client.Client) error { return c.Create(t.Context(), everybodys.DeepCopy()) },
		"write Works": func(c client.Client) error {
			return c.DeleteAllOf(t.Context(), &v1alpha1.Work{}, client.InNamespace("cluster-east"))
		},
		"write Assignments": func(c client.Client) error {
			return c.DeleteAllOf(t.Context(), &v1alpha1.Assignment{}, client.InNamespace(ns))
		},
		"read what is in other namespaces": func(c client.Client) error {
			return c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem))
		},
	}, infra, dev)

	w.apply(t, dev, ns, plainDeployment("web", 2))
	w.awaitReplicas(t, ns, map[string]int32{"east": 2})
	w.awaitHubAvailable(t, ns, "web", 2)
}

// KubeStellar, inventory: who places and who runs only reads it. That the hub and the
// agents write no more than a Cluster's status is what the watcher finds in the audit log
// of every test; here is what becomes of those who try.
func TestKubeStellarInventory(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	config, err := w.Hub.AccountConfig(t.Context(), "patchbay-system", "patchbay-hub")
	if err != nil {
		t.Fatal(err)
	}
	hub, err := client.New(config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	agent := w.clientAs(t, v1alpha1.ClusterUserPrefix+"east", v1alpha1.ClusterGroup)
	patch := func(text string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(text)) }
	for name, c := range map[string]client.Client{"the hub": hub, "east's agent": agent} {
		for what, err := range map[string]error{
			"spec":     c.Patch(t.Context(), cluster("east"), patch(`{"spec":{"unschedulable":true}}`), client.DryRunAll),
			"accepted": c.Patch(t.Context(), cluster("east"), patch(`{"spec":{"accepted":false}}`), client.DryRunAll),
			"labels":   c.Patch(t.Context(), cluster("east"), patch(`{"metadata":{"labels":{"a":"b"}}}`), client.DryRunAll),
			"new":      c.Create(t.Context(), cluster("of-"+ns), client.DryRunAll),
			"delete":   c.Delete(t.Context(), cluster("east"), client.DryRunAll),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s writes the inventory, %s: got %v, want forbidden", name, what, err)
			}
		}
		if err := c.Status().Patch(t.Context(), cluster("east"), patch(`{"status":{"leaves":1}}`), client.DryRunAll); err != nil {
			t.Errorf("%s writes the status: %v", name, err)
		}
	}
	if err := agent.Status().Patch(t.Context(), cluster("west"), patch(`{"status":{"leaves":1}}`), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("east's agent speaks for west: got %v, want forbidden", err)
	}
	if err := agent.List(t.Context(), &v1alpha1.WorkList{}, client.InNamespace("cluster-west")); !apierrors.IsForbidden(err) {
		t.Errorf("east's agent reads the Works of west: got %v, want forbidden", err)
	}

	w.apply(t, w.Hub.Client, ns, deployment("web", 2, "east", ""))
	w.awaitHubAvailable(t, ns, "web", 2)
	w.annotate(t, object("apps/v1", "Deployment", ns, "web"), "west")
	w.awaitReplicas(t, ns, map[string]int32{"west": 2})
	x.read(t)
	seen := 0
	for _, one := range x.writes {
		if one.cluster == "" && one.Resource == "works" && one.isOurs() {
			seen++
		}
	}
	if seen == 0 {
		t.Error("the audit log shows no write of the hub: it proves nothing")
	}
}

// checkPermissions checks that who may do something can, and that the others are forbidden to.
func (w *world) checkPermissions(t *testing.T, who client.Client, what map[string]func(client.Client) error, others ...client.Client) {
	t.Helper()
	for name, do := range what {
		for _, other := range others {
			if err := do(other); !apierrors.IsForbidden(err) {
				t.Errorf("%s, for somebody else: got %v, want forbidden", name, err)
			}
		}
		if who == nil {
			continue
		}
		if err := do(who); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// clientAs is a client with a certificate for a user of these groups.
func (w *world) clientAs(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	file, err := w.Hub.UserKubeconfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// cluster names a Cluster.
func cluster(name string) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
