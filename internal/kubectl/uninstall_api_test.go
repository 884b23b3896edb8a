// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	danmv1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// uninstallTest has a cluster with an Installation that a fake operator uninstalls.
type uninstallTest struct {
	env   *apitest.Env
	admin client.Client
}

func newUninstallTest(t *testing.T) *uninstallTest {
	t.Helper()
	env := apitest.New(t) // there is one Installation
	crds, err := source.Path("deployments", "operator", "crds")
	if err != nil {
		t.Fatal(err)
	}
	env.Kubectl(t, "apply", "--server-side", "--kustomize", crds)
	u := &uninstallTest{env: env}
	f := newFactory(genericiooptions.NewTestIOStreamsDiscard())
	*f.config.KubeConfig = env.ControlPlane.AdminKubeconfig()
	if u.admin, err = f.operatorClient(); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		return u.admin.List(ctx, &v1alpha1.InstallationList{}) == nil, nil
	})
	if err != nil {
		t.Fatalf("wait for the kind Installation: %v", err)
	}
	return u
}

// install creates the Installation.
func (u *uninstallTest) install(t *testing.T) {
	t.Helper()
	i := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstallationName, Finalizers: []string{v1alpha1.UninstallFinalizer}}}
	if err := u.admin.Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

// run runs the command.
func (u *uninstallTest) run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := u.runTo(ctx, &out, args...)
	return out.String(), err
}

func (u *uninstallTest) runTo(ctx context.Context, out io.Writer, args ...string) error {
	return Run(ctx, append([]string{"uninstall", "--kubeconfig=" + u.env.ControlPlane.AdminKubeconfig()}, args...), out, out)
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// runUntil runs the command with --yes, and calls do when it has printed the first step.
func (u *uninstallTest) runUntil(ctx context.Context, do func() error) (string, error) {
	var printed bytes.Buffer
	once := sync.OnceValue(do)
	err := u.runTo(ctx, writerFunc(func(text []byte) (int, error) {
		printed.Write(text)
		return len(text), once()
	}), "--yes")
	return printed.String(), err
}

func daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"a": "b"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "patchbayd"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}},
		},
	}
}

func (u *uninstallTest) createDaemonSet(t *testing.T) {
	t.Helper()
	if err := u.admin.Create(t.Context(), daemonSet()); err != nil {
		t.Fatal(err)
	}
}

func (u *uninstallTest) deleteDaemonSet(t *testing.T) {
	t.Helper()
	if err := u.admin.Delete(t.Context(), daemonSet()); err != nil {
		t.Fatal(err)
	}
}

// step reports a step as the operator does, when the Installation is being deleted. Without a reason, it ends.
func (u *uninstallTest) step(ctx context.Context, reason, message string) error {
	i := &v1alpha1.Installation{}
	if err := u.admin.Get(ctx, client.ObjectKey{Name: v1alpha1.InstallationName}, i); err != nil {
		return err
	}
	if i.DeletionTimestamp == nil {
		return fmt.Errorf("it is not being deleted: %v", i.Annotations)
	}
	if reason == "" {
		i.Finalizers = nil
		return u.admin.Update(ctx, i)
	}
	i.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionUninstalled, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
	}}
	return u.admin.Status().Update(ctx, i)
}

func (u *uninstallTest) get(t *testing.T) *v1alpha1.Installation {
	t.Helper()
	i := &v1alpha1.Installation{}
	if err := u.admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.InstallationName}, i); err != nil {
		t.Fatal(err)
	}
	return i
}

// attach creates a Pod with an interface.
func (u *uninstallTest) attach(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "b"}}
	if err := u.admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	ep := &danmv1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	ep.Spec = danmv1.DanmEpSpec{
		NetworkName: "internal", APIType: danmv1.KindDanmNet, Host: "n1", Pod: "web", PodUID: string(pod.UID), EndpointID: "x", CID: "y",
		Interface: danmv1.DanmEpInterface{Name: "eth0", Address: "10.0.0.5/24"},
	}
	if err := u.admin.Create(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	return pod
}

// reportWithoutDanmEp creates a Node, and its NodeNetwork with a Pod that has no DanmEp.
func (u *uninstallTest) reportWithoutDanmEp(t *testing.T) *danmv1.NodeNetwork {
	t.Helper()
	if err := u.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	n := &danmv1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if err := u.admin.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = []metav1.Condition{{
		Type: danmv1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Reason: danmv1.ReasonDanmEpNotCreated, Message: "1 Pods: default/db", LastTransitionTime: metav1.Now(),
	}}
	if err := u.admin.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

// requireOutput requires an output with all parts, and an error with a part, or none.
func requireOutput(t *testing.T, what, out string, err error, wantError string, parts ...string) {
	t.Helper()
	if wantError == "" && err != nil || wantError != "" && (err == nil || !strings.Contains(err.Error(), wantError)) {
		t.Errorf("%s: got error %v, want %q in it; output:\n%s", what, err, wantError, out)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("%s: got output\n%s\nwant %q in it", what, out, part)
		}
	}
}

// The command changes nothing without --yes and nothing under attached Pods, shows the steps until the end, can be
// interrupted and run again, and fails if the operator refuses or does not run.
func TestUninstall(t *testing.T) {
	u := newUninstallTest(t)
	ctx := t.Context()
	out, err := u.run(ctx)
	requireOutput(t, "not installed", out, err, "Patchbay is not installed")
	u.install(t)
	out, err = u.run(ctx, "--definitions")
	requireOutput(t, "without --yes", out, err, "", "ALL networks", "Nothing was changed. To uninstall: kubectl patchbay uninstall --definitions=true", "--yes\n")
	reported := u.reportWithoutDanmEp(t)
	out, err = u.run(ctx, "--yes", "--wait=false")
	requireOutput(t, "attached without a DanmEp", out, err, "nothing was changed: 1 nodes have attached Pods without a DanmEp: n1: 1 Pods: default/db")
	if err := u.admin.Delete(ctx, reported); err != nil {
		t.Fatal(err)
	}
	pod := u.attach(t)
	out, err = u.run(ctx, "--yes", "--wait=false")
	requireOutput(t, "attached", out, err, "nothing was changed: 1 Pods are attached to networks: default/web on node n1 (DanmNet/default/internal)")
	if i := u.get(t); i.DeletionTimestamp != nil || len(i.Annotations) > 0 {
		t.Errorf("after three refusals the Installation has deletion %v and annotations %v, want none", i.DeletionTimestamp, i.Annotations)
	}

	out, err = u.run(ctx, "--yes", "--force", "--timeout=1s")
	requireOutput(t, "no operator", out, err, "the operator has reported no step within 1s", "1 Pods are attached to networks: default/web")
	if i := u.get(t); i.DeletionTimestamp == nil || i.Annotations[v1alpha1.ForceUninstallAnnotation] != "true" || i.Annotations[v1alpha1.RemoveDefinitionsAnnotation] != "" {
		t.Errorf("with --force, the Installation has deletion %v and annotations %v", i.DeletionTimestamp, i.Annotations)
	}
	if err := u.step(ctx, v1alpha1.ReasonNodesNotCleanedUp, "1 of 2 nodes"); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancel(ctx)
	defer cancel()
	out, err = u.runUntil(interrupted, func() error { cancel(); return nil })
	requireOutput(t, "interrupted", out, err, "interrupted: the operator continues", "NodesNotCleanedUp: 1 of 2 nodes\n")
	for _, tc := range []struct {
		name, reason, message string
		daemonSet             bool
		wantError, want       string
	}{
		{"the operator removes its finalizer", v1alpha1.ReasonUninstalled, "removed", true, "", "Patchbay is uninstalled"},
		{"another installation runs", v1alpha1.ReasonAnotherInstallation, "Nothing is removed", true, "not uninstalled: AnotherInstallation: Nothing is removed", ""},
		{"a user removes the finalizer", v1alpha1.ReasonRemovingNode, "stopping", true, "DaemonSet default/patchbayd is still there", ""},
		{"the last step was not seen", v1alpha1.ReasonRemovingPrograms, "policies", false, "", "Patchbay is uninstalled"},
	} {
		if tc.daemonSet {
			u.createDaemonSet(t)
		}
		if err := u.step(ctx, tc.reason, tc.message); err != nil {
			t.Fatal(err)
		}
		out, err = u.runUntil(ctx, func() error { return u.step(ctx, "", "") })
		requireOutput(t, tc.name, out, err, tc.wantError, tc.reason+": "+tc.message+"\n", tc.want)
		if tc.daemonSet {
			u.deleteDaemonSet(t)
		}
		u.install(t)
		if err := u.admin.Delete(ctx, u.get(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.step(ctx, "", ""); err != nil {
		t.Fatal(err)
	}

	u.install(t)
	if err := u.admin.Delete(ctx, u.get(t)); err != nil {
		t.Fatal(err)
	}
	if err := u.step(ctx, v1alpha1.ReasonPodsAttached, "default/web"); err != nil {
		t.Fatal(err)
	}
	out, err = u.run(ctx, "--yes")
	requireOutput(t, "the operator refuses", out, err, "refused: default/web")
	out, err = u.run(ctx)
	requireOutput(t, "in deletion, without --yes", out, err, "", "is being deleted already")
	if err := client.IgnoreNotFound(u.admin.Delete(ctx, pod, client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
	if err := u.step(ctx, "", ""); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
