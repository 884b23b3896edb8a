// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// images counts the images of the node daemon's Pods.
func (c *cluster) images(ctx context.Context) (map[string]int, error) {
	pods := &corev1.PodList{}
	err := c.admin.List(ctx, pods, client.InNamespace(render.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "patchbayd"})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := range pods.Items {
		counts[pods.Items[i].Spec.Containers[0].Image]++
	}
	return counts, nil
}

// A bad image stops at one of six nodes, although three may be without a daemon and an earlier roll-out is under way:
// Kubernetes would replace all daemons that this one has just started. The condition names node, Pod and cause. When
// the change is undone, the stuck Pod is replaced.
func TestBadImageStopsAtOneNode(t *testing.T) {
	c := newCluster(t)
	startWorkloads(t, c, 6)
	startOperator(t, c)
	const spec = "parts: {node: {updateStrategy: {maxUnavailable: 3}, template: {spec: {containers: [{name: patchbayd, image: \"%s\"}]}}}}"
	c.write(t, fmt.Sprintf(spec, "registry.example/patchbayd:1"))
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	const rolling = "registry.example/patchbayd:2"
	c.write(t, fmt.Sprintf(spec, rolling))
	eventually(t, "several nodes with the next image", func(ctx context.Context) error {
		images, err := c.images(ctx)
		if err == nil && images[rolling] < 3 {
			err = fmt.Errorf("images %v", images)
		}
		return err
	})

	c.write(t, fmt.Sprintf(spec, "registry.example/bad:2"))
	got := c.await(t, v1alpha1.ConditionNode, v1alpha1.ReasonRolloutStopped)
	for _, want := range []string{"1 of 6 nodes updated", "node node-", "Pod patchbayd-", "ImagePullBackOff: no such image"} {
		if !strings.Contains(got.Message, want) {
			t.Errorf("message %q, want %q in it", got.Message, want)
		}
	}
	if got := c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonRolloutStopped); !strings.HasPrefix(got.Message, "Node: ") {
		t.Errorf("Ready: message %q, want the node daemon's", got.Message)
	}
	if images, err := c.images(t.Context()); err != nil || images["registry.example/bad:2"] != 1 {
		t.Errorf("images %v, %v, want one Pod with the bad one", images, err)
	}
	eventually(t, "the Event", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := c.admin.List(ctx, events, client.InNamespace("default")); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "Installation" && e.Type == corev1.EventTypeWarning && e.Reason == v1alpha1.ReasonRolloutStopped {
				return nil
			}
		}
		return fmt.Errorf("%d other Events", len(events.Items))
	})
	i := &v1alpha1.Installation{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.InstallationName}, i); err != nil {
		t.Fatal(err)
	}
	if n := i.Status.Parts.Node; n == nil || n.Total != 6 || n.Updated != 1 || len(n.Versions) < 2 {
		t.Errorf("status %+v, want 1 of 6 updated, and several versions", n)
	}

	c.write(t, fmt.Sprintf(spec, "registry.example/patchbayd:1"))
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	if images, err := c.images(t.Context()); err != nil || images["registry.example/patchbayd:1"] != 6 {
		t.Errorf("images %v, %v, want the old one on all nodes", images, err)
	}
	eventually(t, "the configured strategy", func(ctx context.Context) error {
		ds := &appsv1.DaemonSet{}
		err := c.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, ds)
		if err == nil && ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() != 3 {
			err = fmt.Errorf("maxUnavailable is %s", ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable)
		}
		return err
	})
}

// While a node runs another image of the daemon, the controller keeps its template: an older daemon cannot write
// the networks of a newer controller.
func TestControllerWaitsForNodes(t *testing.T) {
	c := newCluster(t)
	startWorkloads(t, c, 3)
	startOperator(t, c)
	const spec = `parts:
  node: {updateStrategy: {type: OnDelete}, template: {spec: {containers: [{name: patchbayd, image: "registry.example/patchbayd:%[1]d"}]}}}
  controller: {template: {spec: {containers: [{name: patchbay-controller, image: "registry.example/patchbay-controller:%[2]d"}]}}}
`
	c.write(t, fmt.Sprintf(spec, 1, 1))
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	// The nodes run an older daemon, and the controller does not change.
	c.write(t, fmt.Sprintf(spec, 2, 1))
	c.await(t, v1alpha1.ConditionApplied, v1alpha1.ReasonApplied)
	c.await(t, v1alpha1.ConditionController, v1alpha1.ReasonReady)
	c.write(t, fmt.Sprintf(spec, 2, 2))
	for _, condition := range []string{v1alpha1.ConditionApplied, v1alpha1.ConditionController} {
		if got := c.await(t, condition, v1alpha1.ReasonWaitingForNode); !strings.Contains(got.Message, "3 Pods of the node daemon run another image") {
			t.Errorf("%s: message %q", condition, got.Message)
		}
	}
	image := func(ctx context.Context) (string, error) {
		d := &appsv1.Deployment{}
		err := c.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbay-controller"}, d)
		if err != nil {
			return "", err
		}
		return d.Spec.Template.Spec.Containers[0].Image, nil
	}
	if got, err := image(t.Context()); err != nil || got != "registry.example/patchbay-controller:1" {
		t.Errorf("the controller has %s, %v, want the old image", got, err)
	}
	if err := c.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(render.Namespace), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	if got, err := image(t.Context()); err != nil || got != "registry.example/patchbay-controller:2" {
		t.Errorf("the controller has %s, %v, want the new image", got, err)
	}
}

// While a node runs with an earlier ServiceAccount, this account keeps the daemon's rights.
func TestAccountKeepsRights(t *testing.T) {
	c := newCluster(t)
	startWorkloads(t, c, 2)
	startOperator(t, c)
	const spec = "parts: {node: {updateStrategy: {type: OnDelete}, template: {spec: {serviceAccountName: %s}}}}"
	subjects := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("the rights of %v", want), func(ctx context.Context) error {
			cluster, own := &rbacv1.ClusterRoleBinding{}, &rbacv1.RoleBinding{}
			err := errors.Join(c.admin.Get(ctx, client.ObjectKey{Name: "patchbayd"}, cluster), c.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, own))
			for _, all := range [][]rbacv1.Subject{cluster.Subjects, own.Subjects} {
				var got []string
				for _, s := range all {
					got = append(got, s.Name)
				}
				if !slices.Equal(got, want) {
					err = errors.Join(err, fmt.Errorf("subjects %v", got))
				}
			}
			return err
		})
	}
	c.write(t, fmt.Sprintf(spec, "patchbayd"))
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	subjects("patchbayd")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: render.Namespace, Name: "mine"}}
	if err := client.IgnoreAlreadyExists(c.admin.Create(t.Context(), account)); err != nil {
		t.Fatal(err)
	}
	c.write(t, fmt.Sprintf(spec, "mine"))
	c.await(t, v1alpha1.ConditionNode, v1alpha1.ReasonProgressing)
	subjects("mine", "patchbayd")
	if err := c.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(render.Namespace), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	subjects("mine")
}

// A ServiceAccount that does not exist stops the roll-out at the first node, although there is no Pod that could fail,
// and the other daemons keep their rights.
func TestMissingAccountStopsAtOneNode(t *testing.T) {
	c := newCluster(t)
	startWorkloads(t, c, 3)
	startOperator(t, c)
	const spec = "parts: {node: {progressDeadlineSeconds: 10, template: {spec: {serviceAccountName: %s}}}}"
	c.write(t, fmt.Sprintf(spec, "patchbayd"))
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	c.write(t, fmt.Sprintf(spec, "missing"))
	got := c.await(t, v1alpha1.ConditionNode, v1alpha1.ReasonRolloutStopped)
	if !strings.Contains(got.Message, "0 of 3 nodes updated; Kubernetes creates no Pod on 1 nodes: see the Events of DaemonSet patchbayd") {
		t.Errorf("message %q", got.Message)
	}
	if got := c.await(t, v1alpha1.ConditionValid, v1alpha1.ReasonValid); !strings.Contains(got.Message, "without which no Pod starts: missing of patchbayd") {
		t.Errorf("message %q, want it to name the account", got.Message)
	}
	binding := &rbacv1.ClusterRoleBinding{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "patchbayd"}, binding); err != nil {
		t.Fatal(err)
	}
	if s := binding.Subjects; len(s) != 2 || s[0].Name != "missing" || s[1].Name != "patchbayd" {
		t.Errorf("subjects %+v, want the new account and that of the others", s)
	}
	c.write(t, fmt.Sprintf(spec, "patchbayd"))
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
}

// A template that cannot work is rejected with all reasons, and nothing is changed, not even what has drifted.
func TestInvalidTemplate(t *testing.T) {
	c := newCluster(t)
	startWorkloads(t, c, 2)
	startOperator(t, c)
	c.write(t, "{}")
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
	before := c.generation(t)
	c.write(t, `parts: {node: {template: {spec: {hostNetwork: false, volumes: [{name: run, $patch: delete}], containers: [{name: patchbayd, image: "other:1"}]}}}}`)
	got := c.await(t, v1alpha1.ConditionValid, v1alpha1.ReasonInvalid)
	for _, want := range []string{
		"spec.parts.node.template.spec.hostNetwork: must be true",
		"spec.parts.node.template.spec.volumes[run]: must be a hostPath",
	} {
		if !strings.Contains(got.Message, want) {
			t.Errorf("message %q, want %q in it", got.Message, want)
		}
	}
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonInvalid)
	if after := c.generation(t); after != before {
		t.Errorf("the DaemonSet has generation %d, want still %d", after, before)
	}
	c.write(t, "{}")
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
}

func (c *cluster) generation(t *testing.T) int64 {
	t.Helper()
	ds := &appsv1.DaemonSet{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, ds); err != nil {
		t.Fatal(err)
	}
	return ds.Generation
}

// An Installation in a cluster where an overlay has installed Patchbay into another namespace changes nothing.
func TestAnotherInstallation(t *testing.T) {
	c := newCluster(t)
	original := &rbacv1.ClusterRoleBinding{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "patchbayd"}, original); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	set := func(namespace string) error {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: original.Name, Labels: original.Labels}, RoleRef: original.RoleRef}
		if err := client.IgnoreNotFound(c.admin.Delete(ctx, b)); err != nil {
			return err
		}
		b.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Name: "patchbayd", Namespace: namespace}}
		return c.admin.Create(ctx, b)
	}
	t.Cleanup(func() {
		if err := set(render.Namespace); err != nil {
			t.Error(err)
		}
	})
	if err := set("network"); err != nil {
		t.Fatal(err)
	}
	startOperator(t, c)
	c.write(t, "{}")
	if got := c.await(t, v1alpha1.ConditionApplied, v1alpha1.ReasonAnotherInstallation); !strings.Contains(got.Message, "must be for namespace patchbay-system: got network") {
		t.Errorf("message %q", got.Message)
	}
	err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, &appsv1.DaemonSet{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("get DaemonSet: %v, want none", err)
	}
	if err := set(render.Namespace); err != nil {
		t.Fatal(err)
	}
	c.await(t, v1alpha1.ConditionApplied, v1alpha1.ReasonApplied)
}
