// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// writerOfNodes lets an account write all of Nodes by RBAC, as kubelet may write its own, and waits until that holds.
func writerOfNodes(t *testing.T, env *apitest.Env, who apitest.Identity) client.WithWatch {
	t.Helper()
	name := apitest.Name("nodes")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "create", "update", "patch"},
	}}}
	bind := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: who.UserName}},
	}
	for _, o := range []client.Object{role, bind} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = env.Client.Delete(context.WithoutCancel(t.Context()), o) })
	}
	c := env.As(t, who)
	eventually(t, "an account has the right to write Nodes", func() error {
		err := c.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "no-node"}}, mergePatch(`{}`))
		return client.IgnoreNotFound(err)
	})
	return c
}

// nodeWrite is a write of a Node that has a label of a NIC.
type nodeWrite struct {
	reason, patch string
	status        bool
	// refused is a part of the message; empty means accepted.
	refused string
}

func (w nodeWrite) check(t *testing.T, c client.Client, node *corev1.Node) {
	t.Helper()
	write := func(ctx context.Context) error {
		if w.status {
			return c.Status().Patch(ctx, node.DeepCopy(), mergePatch(w.patch), client.DryRunAll)
		}
		return c.Patch(ctx, node.DeepCopy(), mergePatch(w.patch), client.DryRunAll)
	}
	err := write(t.Context())
	switch {
	case w.refused == "" && err != nil:
		t.Errorf("%s\nwrite: %v", w.reason, err)
	case w.refused != "" && (!apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), w.refused)):
		t.Errorf("%s\nwrite: got %v, want it refused with %q", w.reason, err, w.refused)
	}
}

// labelledNode stores a Node with a label of a NIC.
func labelledNode(t *testing.T, env *apitest.Env) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("node"), Labels: map[string]string{"nics.danm.io/ens4": "", "zone": "x"}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if err := env.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// A kubelet may label its Node, and must not attract Pods for NICs that its NodeNetwork does not report.
func TestNodesDoNotLabelTheirNICs(t *testing.T) {
	t.Parallel()
	const refused = "metadata.labels must keep those with the prefix nics.danm.io/"
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		node := labelledNode(t, env)
		kubelet := writerOfNodes(t, env, apitest.Identity{UserName: "kubelet-like", Groups: []string{"system:authenticated"}})
		for name, tc := range map[string]nodeWrite{
			"Heartbeat":    {reason: "The status changes all the time.", status: true, patch: `{"status": {"nodeInfo": {"kernelVersion": "6.1"}}}`},
			"OtherLabel":   {reason: "Its other labels are kubelet's.", patch: `{"metadata": {"labels": {"zone": "y", "more": "z", "nics.danm.example/ens5": ""}}}`},
			"Spec":         {reason: "Taints are not Patchbay's.", patch: `{"spec": {"taints": null}}`},
			"Same":         {reason: "The label does not change.", patch: `{"metadata": {"labels": {"nics.danm.io/ens4": ""}}}`},
			"Add":          {reason: "Pods on the NIC would come.", patch: `{"metadata": {"labels": {"nics.danm.io/ens5": ""}}}`, refused: refused},
			"AddByStatus":  {reason: "A write of status can change labels.", status: true, patch: `{"metadata": {"labels": {"nics.danm.io/ens5": ""}}}`, refused: refused},
			"Remove":       {reason: "The scheduler ends no Pod, but kubelet does when it restarts.", patch: `{"metadata": {"labels": {"nics.danm.io/ens4": null}}}`, refused: refused},
			"RemoveAll":    {reason: "The same, with all labels.", patch: `{"metadata": {"labels": null}}`, refused: refused},
			"Value":        {reason: "A nodeSelector names the value.", patch: `{"metadata": {"labels": {"nics.danm.io/ens4": "x"}}}`, refused: refused},
			"RemoveStatus": {reason: "A write of status can change labels.", status: true, patch: `{"metadata": {"labels": {"nics.danm.io/ens4": null}}}`, refused: refused},
		} {
			t.Run(name, func(t *testing.T) { tc.check(t, kubelet, node) })
		}
		labelled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("node"), Labels: map[string]string{"nics.danm.io/ens4": ""}}}
		if err := kubelet.Create(t.Context(), labelled, client.DryRunAll); err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("a Node that is created with a label: got %v, want it refused", err)
		}
		labelled.Labels = map[string]string{"zone": "x"}
		if err := kubelet.Create(t.Context(), labelled, client.DryRunAll); err != nil {
			t.Errorf("a Node that is created with other labels: %v", err)
		}
		if err := env.Client.Patch(t.Context(), node.DeepCopy(), mergePatch(`{"metadata": {"labels": {"nics.danm.io/ens5": ""}}}`), client.DryRunAll); err != nil {
			t.Errorf("a cluster administrator labels a Node: %v", err)
		}
	})
}

// The controller changes nothing of a Node but the labels of its NICs.
func TestControllerLabelsNICsOnly(t *testing.T) {
	t.Parallel()
	const refused = "except its labels with the prefix nics.danm.io/"
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		node := labelledNode(t, env)
		for name, tc := range map[string]nodeWrite{
			"Add":        {reason: "The node reports another NIC.", patch: `{"metadata": {"labels": {"nics.danm.io/ens5": ""}}}`},
			"Remove":     {reason: "The NIC is gone.", patch: `{"metadata": {"labels": {"nics.danm.io/ens4": null}}}`},
			"Value":      {reason: "A nodeSelector names the value.", patch: `{"metadata": {"labels": {"nics.danm.io/ens4": "x"}}}`, refused: `must have the value ""`},
			"OtherLabel": {reason: "Other labels send Pods elsewhere, too.", patch: `{"metadata": {"labels": {"zone": "y"}}}`, refused: refused},
			"NewLabel":   {reason: "A role, for instance.", patch: `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`, refused: refused},
			"DropLabel":  {reason: "It is not Patchbay's.", patch: `{"metadata": {"labels": {"zone": null}}}`, refused: refused},
			"Taint":      {reason: "Taints keep Pods away.", patch: `{"spec": {"taints": null}}`, refused: refused},
			"Cordon":     {reason: "That is for administrators.", patch: `{"spec": {"unschedulable": true}}`, refused: refused},
			"Annotation": {reason: "Programs act on annotations of Nodes.", patch: `{"metadata": {"annotations": {"a": "c"}}}`, refused: refused},
			"Finalizer":  {reason: "The Node could not be deleted.", patch: `{"metadata": {"finalizers": ["example.com/never"]}}`, refused: refused},
			"Owner":      {reason: "The garbage collector would delete it.", patch: `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "never-was", "uid": "0"}]}}`, refused: refused},
			"Status":     {reason: "RBAC does not grant it.", status: true, patch: `{"status": {"nodeInfo": {"kernelVersion": "6.1"}}}`, refused: "forbidden"},
		} {
			t.Run(name, func(t *testing.T) { tc.check(t, env.As(t, apitest.Controller()), node) })
		}
		// An overlay may grant more by mistake.
		everything := writerOfNodes(t, env, apitest.Controller())
		nodeWrite{reason: "The policy does not depend on RBAC.", status: true, patch: `{"status": {"nodeInfo": {"kernelVersion": "6.1"}}}`, refused: refused}.check(t, everything, node)
		if err := everything.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("node")}}, client.DryRunAll); err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("the controller creates a Node: got %v, want it refused", err)
		}
	})
}
