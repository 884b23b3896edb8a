// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A user creates a token, runs the printed join command, accepts the cluster and lists it. The hub and
// the cluster are one API server here.
func TestAClusterJoins(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := hub.Install(ctx, env.Config); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := Run(ctx, append(args, "--kubeconfig="+env.ControlPlane.AdminKubeconfig()), &out, &out)
		return out.String(), err
	}
	printed, err := do("hub", "token", "east", "--ttl=10m")
	if err != nil {
		t.Fatal(err)
	}
	secrets := &corev1.SecretList{}
	if err := env.Client.List(ctx, secrets, client.InNamespace("kube-system"), client.MatchingLabels{v1alpha1.JoinClusterLabel: "east"}); err != nil || len(secrets.Items) != 1 {
		t.Fatalf("%d tokens, %v", len(secrets.Items), err)
	}
	if got := string(secrets.Items[0].Data["auth-extra-groups"]); got != "system:bootstrappers:patchbay:east" {
		t.Errorf("the token has the groups %q", got)
	}
	command := regexp.MustCompile(`kubectl patchbay (cluster join .*)`).FindStringSubmatch(printed)
	if command == nil {
		t.Fatalf("no command in %q", printed)
	}
	for range 2 { // joining again changes nothing
		if out, err := do(strings.Fields(command[1])...); err != nil || !strings.Contains(out, "asks to join as east") {
			t.Fatalf("%q, %v", out, err)
		}
	}
	agent := &unstructured.Unstructured{}
	agent.SetAPIVersion("apps/v1")
	agent.SetKind("Deployment")
	key := client.ObjectKey{Namespace: agentNamespace, Name: "patchbay-agent"}
	if err := env.Client.Get(ctx, key, agent); err != nil || agent.GetGeneration() != 1 {
		t.Errorf("generation %d, %v: the second join changed the agent", agent.GetGeneration(), err)
	}
	other := strings.Fields(strings.Replace(command[1], "join east", "join west", 1))
	if _, err := do(other...); err == nil || !strings.Contains(err.Error(), "this cluster is east") {
		t.Errorf("join as another cluster without --force: got %v, want an error", err)
	}
	if _, err := do(append(other, "--force")...); err != nil {
		t.Error(err)
	}
	for range 2 {
		if out, err := do("cluster", "accept", "east"); err != nil || out != "east is accepted\n" {
			t.Errorf("%q, %v", out, err)
		}
	}
	ns := env.Namespace(t)
	bindings := map[string]string{"patchbay-agent": "patchbay-agent-placeable", "placed": "view"}
	for name, role := range bindings {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{v1alpha1.ManagedLabel: "true"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		if err := env.Client.Create(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // leaving again changes nothing
		if out, err := do("cluster", "leave"); err != nil || !strings.Contains(out, "the agent is removed") {
			t.Errorf("%q, %v", out, err)
		}
	}
	if err := env.Client.Get(ctx, key, agent); !apierrors.IsNotFound(err) {
		t.Errorf("the agent after leave: %v", err)
	}
	for name, role := range bindings {
		err := env.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &rbacv1.RoleBinding{})
		if gone := apierrors.IsNotFound(err); gone != (role == "patchbay-agent-placeable") || !gone && err != nil {
			t.Errorf("RoleBinding %s to %s after leave: %v, want only the agent's own to be deleted", name, role, err)
		}
	}
	if err := env.Client.Get(ctx, client.ObjectKey{Name: agentNamespace}, &corev1.Namespace{}); err != nil {
		t.Errorf("the agent's namespace after leave: %v, want it kept", err)
	}
	if out, err := do("cluster", "list"); err != nil || !strings.Contains(out, "east") {
		t.Errorf("%q, %v", out, err)
	}
	var out bytes.Buffer
	complete := []string{"__complete", "--kubeconfig=" + env.ControlPlane.AdminKubeconfig(), "cluster", "accept", "ea"}
	if err := Run(ctx, complete, &out, &out); err != nil || !strings.HasPrefix(out.String(), "east\n") {
		t.Errorf("completion of a Cluster's name: %q, %v", out.String(), err)
	}
	if out, err := do("cluster", "list", "-o", "name"); err != nil || !slices.Contains(strings.Split(out, "\n"), "cluster.placement.patchbay.io/east") {
		t.Errorf("list of names: %q, %v", out, err)
	}
}

// `cluster accept` changes no other field of a Cluster that exists.
func TestAcceptKeepsTheRest(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	if err := hub.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	c, _, err := adminFactory(env).placementClient()
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Unschedulable: true, Properties: map[string]v1alpha1.PropertyValue{"nic": "ens4"}}}
	cluster.Name = "west"
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if err := acceptCluster(t.Context(), c, "west"); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	if s := cluster.Spec; !s.Accepted || !s.Unschedulable || s.Properties["nic"] != "ens4" {
		t.Errorf("got %+v", s)
	}
}

// adminFactory returns a factory with the admin's kubeconfig.
func adminFactory(env *apitest.Env) *factory {
	f := newFactory(genericiooptions.NewTestIOStreamsDiscard())
	*f.config.KubeConfig = env.ControlPlane.AdminKubeconfig()
	return f
}
