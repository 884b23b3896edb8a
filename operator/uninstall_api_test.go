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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	danmv1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// fleet is a cluster with nodes, on which it does what daemons, kubelets and Kubernetes' garbage collector do when
// Patchbay is uninstalled.
type fleet struct {
	*cluster

	namespace string
	network   *danmv1.ClusterNetwork
	// silent are nodes that are cut off: their Pods do not end. mute are those whose daemon ends without a report.
	silent, mute []string
	// later is how much later the operator's clock is.
	later time.Duration
}

// newFleet applies all objects of an Installation over a cluster with two nodes, and one network that is in use.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{cluster: newCluster(t)}
	f.Kubectl(t, "delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "--all") // no program answers those of earlier tests
	f.namespace = f.Namespace(t)
	for _, name := range []string{"n1", "n2"} {
		f.createNode(t, name)
	}
	f.createReports(t)
	n := &danmv1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("net"), Finalizers: []string{danmv1.InUseFinalizer}}}
	n.Spec = danmv1.NetworkSpec{NetworkID: "n", Options: danmv1.NetworkOptions{Device: "ens4", CIDR: "10.0.0.0/24"}}
	eventually(t, "the network", func(ctx context.Context) error { return f.admin.Create(ctx, n) })
	t.Cleanup(func() { f.remove(n) })
	f.network = n
	return f
}

// remove deletes an object whose finalizers no program removes.
func (f *fleet) remove(o client.Object) {
	ctx := context.Background()
	_ = f.admin.Delete(ctx, o)
	_ = f.admin.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

// createNode creates a node that is ready.
func (f *fleet) createNode(t *testing.T, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := f.admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := f.admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.remove(node) })
}

// createReports creates the NodeNetworks, as daemons do when they start.
func (f *fleet) createReports(t *testing.T) {
	t.Helper()
	for _, name := range []string{"n1", "n2"} {
		node := &corev1.Node{}
		if err := f.admin.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			t.Fatal(err)
		}
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}
		report := &danmv1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
		if err := f.admin.Create(t.Context(), report); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.remove(report) })
	}
}

// install applies everything that an Installation describes, and starts its Pods.
func (f *fleet) install(t *testing.T) *v1alpha1.Installation {
	t.Helper()
	i := f.write(t, "{}")
	u := &uninstall.Uninstaller{Client: f.admin, Now: time.Now}
	if err := u.Protect(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	plan, err := render.New(i)
	if err != nil {
		t.Fatal(err)
	}
	a := apply.New(f.admin, f.admin)
	for _, o := range plan.Objects {
		if o.Phase == render.Webhooks {
			continue // no program answers them
		}
		if err := a.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, node := range map[string]string{"patchbayd-1": "n1", "patchbayd-2": "n2", "patchbay-controller-1": "n1"} {
		program := name[:strings.LastIndex(name, "-")]
		f.createPod(t, render.Namespace, name, node, map[string]string{"app.kubernetes.io/name": program}, ownerOf(program)...)
	}
	return i
}

// ownerOf returns the owner of a program's Pod: its DaemonSet, or a ReplicaSet of its Deployment.
func ownerOf(program string) []metav1.OwnerReference {
	kind := "ReplicaSet"
	if program == "patchbayd" {
		kind = "DaemonSet"
	}
	isController := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: program, UID: "1", Controller: &isController}}
}

func (f *fleet) createPod(t *testing.T, namespace, name, node string, labels map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, OwnerReferences: owners}}
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "a", Image: "b"}}}
	eventually(t, "the Pod "+name, func(ctx context.Context) error { return f.admin.Create(ctx, pod) })
	t.Cleanup(func() { _ = f.admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	return pod
}

// attach creates a Pod with an interface on a node.
func (f *fleet) attach(t *testing.T, name, node string) (*corev1.Pod, *danmv1.DanmEp) {
	t.Helper()
	pod := f.createPod(t, f.namespace, name, node, nil)
	ep := &danmv1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Finalizers: []string{danmv1.NodeFinalizer}}}
	ep.Spec = danmv1.DanmEpSpec{
		NetworkName: "default", APIType: danmv1.KindClusterNetwork, Host: node, Pod: name, PodUID: string(pod.UID), EndpointID: "x", CID: "y",
		Interface: danmv1.DanmEpInterface{Name: "eth0", Address: "10.0.0.5/24"},
	}
	if err := f.admin.Create(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.remove(ep) })
	return pod, ep
}

// attachGone returns the DanmEp of a Pod that was deleted by force.
func (f *fleet) attachGone(t *testing.T, name, node string) *danmv1.DanmEp {
	t.Helper()
	pod, ep := f.attach(t, name, node)
	if err := f.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	return ep
}

// advance does what the others do after a step.
func (f *fleet) advance(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	pods := &corev1.PodList{}
	if err := f.admin.List(ctx, pods, client.InNamespace(render.Namespace)); err != nil {
		t.Fatal(err)
	}
	ds := &appsv1.DaemonSet{}
	err := f.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, ds)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	ending, left := err == nil && ds.DeletionTimestamp != nil, 0
	for k := range pods.Items {
		pod := &pods.Items[k]
		isDaemon := pod.Labels["app.kubernetes.io/name"] == "patchbayd"
		switch {
		case isDaemon && (!ending || slices.Contains(f.silent, pod.Spec.NodeName)):
			left++
			continue
		case isDaemon:
			f.report(t, pod.Spec.NodeName, types.UID(ds.Annotations[v1alpha1.CleanUpAnnotation]))
		case pod.Labels["app.kubernetes.io/name"] != "patchbay-controller":
			continue
		default:
			d := &appsv1.Deployment{}
			if err := f.admin.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbay-controller"}, d); !apierrors.IsNotFound(err) {
				continue
			}
		}
		if err := f.admin.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	if ending && left == 0 {
		f.remove(ds)
	}
}

// report writes what a daemon reports when it stops, with the rights of its account.
func (f *fleet) report(t *testing.T, node string, request types.UID) {
	t.Helper()
	if slices.Contains(f.mute, node) {
		return
	}
	daemon := f.As(t, apitest.NodeDaemon(node))
	// The API server acts on rights a moment after they are applied.
	eventually(t, "the report of "+node+" after the DaemonSet is deleted", func(ctx context.Context) error {
		o := &danmv1.NodeNetwork{}
		if err := f.admin.Get(ctx, client.ObjectKey{Name: node}, o); err != nil {
			return err
		}
		o.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionCleanedUp, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCleanedUp,
			Message: v1alpha1.CleanUpMessage(request, v1alpha1.CleanUpComplete), LastTransitionTime: metav1.Now(),
		}}
		return daemon.Status().Update(ctx, o)
	})
}

// errKilled is what a request returns before or after which the operator was killed.
var errKilled = errors.New("killed")

// interrupter kills the operator before and after each of its writes: each is tried three times.
type interrupter struct {
	tries map[string]int
	kills int
}

// do runs a write unless the operator is killed first.
func (k *interrupter) do(name string, write func() error) error {
	k.tries[name]++
	switch k.tries[name] {
	case 1:
		k.kills++
		return errKilled
	case 2:
		if err := write(); err != nil {
			return err
		}
		k.kills++
		return errKilled
	}
	return write()
}

// client returns a client with the rights of the operator's account, which kills it.
func (k *interrupter) client(t *testing.T, f *fleet) client.Client {
	t.Helper()
	scheme, err := newScheme() // that of the tests has more kinds
	if err != nil {
		t.Fatal(err)
	}
	base, err := client.NewWithWatch(f.ConfigAs(account()), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if k == nil {
		return base
	}
	key := func(verb string, o client.Object) string {
		return verb + " " + o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return interceptor.NewClient(base, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return k.do(key("patch", o), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return k.do(key("delete", o), func() error { return c.Delete(ctx, o, opts...) })
		},
	})
}

// uninstall deletes the Installation and does steps until a step waits that only a user can end, or all is done. It
// returns the reasons of the steps in their order, and the last one.
func (f *fleet) uninstall(t *testing.T, i *v1alpha1.Installation, k *interrupter) (reasons []string, last uninstall.Step) {
	t.Helper()
	if err := client.IgnoreNotFound(f.admin.Delete(t.Context(), i)); err != nil {
		t.Fatal(err)
	}
	c := k.client(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	deniedSince := time.Now()
	for waits := 0; waits < 3; {
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(i), i)
		if apierrors.IsNotFound(err) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		u := &uninstall.Uninstaller{Client: c, Now: func() time.Time { return time.Now().Add(f.later) }} // as after a start
		step, err := u.Next(ctx, i.DeepCopy())
		if err == nil && step.Action == uninstall.Finish {
			err = u.Finish(ctx, i.DeepCopy(), &step)
		}
		if ctx.Err() != nil {
			t.Fatalf("the uninstallation neither ends nor waits for a user: %v after the steps %v", err, reasons)
		}
		f.advance(t)
		if (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && time.Since(deniedSince) < 2*time.Minute {
			continue // the API server acts on rights a moment after they are applied, and on policies after their deletion
		}
		deniedSince = time.Now()
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("step after the steps %v: %v", reasons, err)
		}
		last = step
		if len(reasons) == 0 || reasons[len(reasons)-1] != step.Reason {
			reasons = append(reasons, step.Reason)
		}
		waits++
		if step.Action != uninstall.Wait {
			waits = 0
		}
	}
	return reasons, last
}

// requireRemoved requires that nothing is left of what the operator has applied, except namespaces and definitions.
func (f *fleet) requireRemoved(t *testing.T) {
	t.Helper()
	for _, kind := range apply.PrunedKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := f.admin.List(t.Context(), list, client.HasLabels{render.InstallationLabel}); err != nil {
			t.Fatal(err)
		}
		for k := range list.Items {
			if o := &list.Items[k]; apply.IsApplied(o) {
				t.Errorf("%s %s is left", kind.Kind, o.Name)
			}
		}
	}
	err := f.admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.InstallationName}, &v1alpha1.Installation{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Installation: got %v, want it to be gone", err)
	}
}

// requireSteps requires that the steps had these reasons.
func requireSteps(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("steps: got %v, want %v", got, want)
	}
}

// The operator is killed before and after each write, and ends all the same. Networks and definitions stay, and can be
// deleted without Patchbay; a Pod that is attached is named first.
func TestUninstall(t *testing.T) {
	f := newFleet(t)
	pod, ep := f.attach(t, "web", "n1")
	i := f.install(t)
	reasons, last := f.uninstall(t, i, nil)
	requireSteps(t, reasons, v1alpha1.ReasonPodsAttached)
	if want := f.namespace + "/web on node n1 (ClusterNetwork/default)"; !strings.Contains(last.Message, want) {
		t.Errorf("refused: got %q, want %q in it", last.Message, want)
	}
	if err := f.admin.Get(t.Context(), client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, &appsv1.DaemonSet{}); err != nil {
		t.Errorf("the DaemonSet after the refusal: %v", err)
	}

	if err := f.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	reasons, _ = f.uninstall(t, i, nil)
	requireSteps(t, reasons, v1alpha1.ReasonDetachingPods)
	f.remove(ep)
	k := &interrupter{tries: map[string]int{}}
	reasons, _ = f.uninstall(t, i, k)
	requireSteps(t, reasons, v1alpha1.ReasonRemovingNode, v1alpha1.ReasonRemovingPrograms, v1alpha1.ReasonRemovingFinalizers, v1alpha1.ReasonUninstalled)
	const fewest = 60 // two for each object, of which there are more than thirty
	if k.kills < fewest {
		t.Errorf("the operator was killed %d times, want at least %d", k.kills, fewest)
	}
	f.requireRemoved(t)
	if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(f.network), f.network); err != nil || len(f.network.Finalizers) > 0 {
		t.Errorf("the network: got finalizers %v, %v, want it to stay without any", f.network.Finalizers, err)
	}
}

// An installation after an uninstallation is uninstalled with force: a Pod keeps its interface, one node is cut off, and
// the daemon of the other one ends without a report. The reports of the earlier uninstallation are gone.
func TestForcedUninstall(t *testing.T) {
	f := newFleet(t)
	i := f.install(t)
	f.uninstall(t, i, nil)
	f.requireRemoved(t)

	left := &danmv1.NodeNetworkList{}
	if err := f.admin.List(t.Context(), left); err != nil || len(left.Items) > 0 {
		t.Errorf("reports: got %d, %v, want none, because a later uninstallation would wait for these nodes", len(left.Items), err)
	}

	f.createReports(t)
	i = f.install(t)
	_, ep := f.attach(t, "web", "n1")
	mayRun, ended := f.attachGone(t, "cut-off", "n2"), f.attachGone(t, "off", "n3")
	f.silent, f.mute = []string{"n2"}, []string{"n1"}
	f.annotate(t, i, map[string]string{v1alpha1.ForceUninstallAnnotation: "yes"})
	reasons, last := f.uninstall(t, i, nil)
	requireSteps(t, reasons, v1alpha1.ReasonPodsAttached)
	if !strings.Contains(last.Message, `must be true or false: got "yes"`) {
		t.Errorf("got %q, want it to name the annotation", last.Message)
	}
	f.annotate(t, i, map[string]string{v1alpha1.ForceUninstallAnnotation: "true"})
	reasons, last = f.uninstall(t, i, nil)
	requireSteps(t, reasons, v1alpha1.ReasonRemovingNode)
	if !strings.Contains(last.Message, "n2") {
		t.Errorf("got %q, want it to name the node that has not ended", last.Message)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	const notReady = `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`
	if err := f.admin.Status().Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(notReady))); err != nil {
		t.Fatal(err)
	}
	_, last = f.uninstall(t, i, nil)
	if last.Action != uninstall.Finish || !strings.Contains(last.Message, "n1, n2 (NotReady)") || !strings.Contains(last.Message, "keep their interfaces") {
		t.Errorf("the last step: got %s %q, want it to name the nodes and the Pods", last.Action, last.Message)
	}
	if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(ep), ep); err != nil || len(ep.Finalizers) > 0 {
		t.Errorf("the DanmEp of the Pod: got finalizers %v, %v, want it without any", ep.Finalizers, err)
	}
	if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(mayRun), mayRun); err != nil || len(mayRun.Finalizers) > 0 {
		t.Errorf("the DanmEp of a container that may still run: got finalizers %v, %v, want it without any, because it covers the address", mayRun.Finalizers, err)
	}
	if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(ended), ended); !apierrors.IsNotFound(err) {
		t.Errorf("the DanmEp of a node that is gone: got %v, want it to be deleted", err)
	}
	if err := f.admin.Get(t.Context(), client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, &appsv1.DaemonSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("the DaemonSet, of which a Pod is left: got %v, want it to be gone, because a later installation could start no daemon", err)
	}
	f.silent, f.mute = nil, []string{"n1", "n2"} // the node is back, and its daemon has no rights any more
	f.advance(t)
	f.requireRemoved(t)
}

func (f *fleet) annotate(t *testing.T, i *v1alpha1.Installation, annotations map[string]string) {
	t.Helper()
	i.Annotations, i.ResourceVersion = annotations, ""
	patch, err := yaml.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err == nil {
		patch, err = yaml.YAMLToJSON(patch)
	}
	if err == nil {
		err = f.admin.Patch(t.Context(), i, client.RawPatch(types.MergePatchType, patch))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reportWithoutDanmEp sets or removes the condition of a node with Pods that have no DanmEp, with the rights of its daemon.
func (f *fleet) reportWithoutDanmEp(t *testing.T, node, message string) {
	t.Helper()
	daemon := f.As(t, apitest.NodeDaemon(node))
	eventually(t, "the report of "+node, func(ctx context.Context) error {
		o := &danmv1.NodeNetwork{}
		if err := f.admin.Get(ctx, client.ObjectKey{Name: node}, o); err != nil {
			return err
		}
		o.Status.Conditions = nil
		if message != "" {
			o.Status.Conditions = []metav1.Condition{{
				Type: danmv1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Reason: danmv1.ReasonDanmEpNotCreated, Message: message, LastTransitionTime: metav1.Now(),
			}}
		}
		return daemon.Status().Update(ctx, o)
	})
}

// forge creates an object with the label and the fields of the operator.
func (f *fleet) forge(t *testing.T, o client.Object) {
	t.Helper()
	o.SetLabels(map[string]string{render.InstallationLabel: v1alpha1.InstallationName})
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: render.Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "rbac.authorization.k8s.io/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:x":{}}}}`),
	}})
	if err := f.admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.remove(o) })
	if !apply.IsApplied(o) {
		t.Fatalf("the API server does not keep managedFields %v", o.GetManagedFields())
	}
}

// What the operator has not applied neither stops the uninstallation, nor is it removed: an agent of `kubectl patchbay cluster
// join`, a Pod with the label of a program, and objects with the label and the fields of the operator.
func TestForgedObjectsStopNoUninstallation(t *testing.T) {
	f := newFleet(t)
	i := f.install(t)
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	left := []client.Object{
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "x"}, RoleRef: role},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "patchbay-agent", Finalizers: []string{"x.example/y"}}, RoleRef: role},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "patchbay-agent"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a-forged"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "b-forged", Finalizers: []string{"x.example/y"}}},
	}
	for _, o := range left {
		f.forge(t, o)
	}
	if err := f.admin.Delete(t.Context(), left[4]); err != nil { // its finalizer keeps it
		t.Fatal(err)
	}
	agent := f.joinAgent(t)
	node := &corev1.Node{}
	if err := f.admin.Get(t.Context(), client.ObjectKey{Name: "n1"}, node); err != nil {
		t.Fatal(err)
	}
	isController := true
	mirror := f.createPod(t, render.Namespace, "mirror", "n1", map[string]string{"app.kubernetes.io/name": agent.Name},
		metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &isController})
	joined := f.createPod(t, render.Namespace, "joined", "n1", map[string]string{"app.kubernetes.io/name": agent.Name}, ownerOf(agent.Name)...)
	f.later = 2 * time.Minute // the agent has joined long ago

	reasons, last := f.uninstall(t, i, nil)
	if !slices.Contains(reasons, v1alpha1.ReasonUninstalled) {
		t.Fatalf("steps: got %v, want %s: %s", reasons, v1alpha1.ReasonUninstalled, last.Message)
	}
	for _, want := range []string{"patchbay-system/mirror on node n1", "stay: patchbay-system/patchbay-agent.", "ClusterRole a-forged, ClusterRole b-forged has x.example/y"} {
		if !strings.Contains(last.Message, want) {
			t.Errorf("got %q, want %q in it", last.Message, want)
		}
	}
	if strings.Contains(last.Message, f.namespace) {
		t.Errorf("got %q, want nothing of a user's namespace", last.Message)
	}
	for _, o := range append(left[:4:4], agent, mirror, joined) {
		uid := o.GetUID()
		if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetUID() != uid || o.GetDeletionTimestamp() != nil {
			t.Errorf("%T %s: got %v, deleted at %v, want it to stay as it is", o, o.GetName(), err, o.GetDeletionTimestamp())
		}
	}
	for _, o := range left {
		f.remove(o)
	}
	f.requireRemoved(t)
}

// joinAgent applies the Deployment of an agent as `kubectl patchbay cluster join` does.
func (f *fleet) joinAgent(t *testing.T) *appsv1.Deployment {
	t.Helper()
	const manifest = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "patchbay-system", "name": "patchbay-agent"}, "spec": {
		"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}}}}`
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(manifest)); err != nil {
		t.Fatal(err)
	}
	if err := f.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl-patchbay")); err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()}}
	t.Cleanup(func() { f.remove(d) })
	return d
}

// The uninstallation waits for a Pod of which only its node knows. Without a report, it waits until a user has cleaned up
// the node.
func TestUninstallWaitsForReports(t *testing.T) {
	f := newFleet(t)
	i := f.install(t)
	f.reportWithoutDanmEp(t, "n1", "1 Pods are attached and have no DanmEp: shop/db")
	reasons, last := f.uninstall(t, i, nil)
	requireSteps(t, reasons, v1alpha1.ReasonPodsAttached)
	if !strings.Contains(last.Message, "on 1 nodes: n1: 1 Pods are attached and have no DanmEp: shop/db. Delete them") {
		t.Errorf("got %q, want it to name the Pod", last.Message)
	}
	f.reportWithoutDanmEp(t, "n1", "")
	f.mute = []string{"n2"}
	reasons, last = f.uninstall(t, i, nil)
	requireSteps(t, reasons, v1alpha1.ReasonRemovingNode, v1alpha1.ReasonNodesNotCleanedUp)
	if !strings.Contains(last.Message, "1 of 2 nodes have not reported that they are cleaned up: n2.") {
		t.Errorf("got %q, want it to name the node", last.Message)
	}
	f.remove(&danmv1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	f.uninstall(t, i, nil)
	f.requireRemoved(t)
}

// On request, the definitions go with all objects. An object that stays is named. They are applied again for the next test.
func TestUninstallDefinitions(t *testing.T) {
	f := newFleet(t)
	i := f.install(t)
	f.annotate(t, i, map[string]string{v1alpha1.RemoveDefinitionsAnnotation: "true"})
	kept := &danmv1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "kept", Finalizers: []string{"example.com/never"}}}
	kept.Spec = danmv1.NetworkSpec{NetworkID: "k", Options: danmv1.NetworkOptions{CIDR: "10.1.0.0/24"}}
	eventually(t, "the network", func(ctx context.Context) error { return f.admin.Create(ctx, kept) })
	t.Cleanup(func() { f.remove(kept) })
	k := &interrupter{tries: map[string]int{}}
	defer f.InstallDefinitions(t)
	var reasons []string
	var blocked bool
	for end := time.Now().Add(2 * time.Minute); !slices.Contains(reasons, v1alpha1.ReasonUninstalled); {
		steps, last := f.uninstall(t, i, k) // the API server deletes the objects of a definition meanwhile
		reasons = append(reasons, steps...)
		if !blocked && last.Reason == v1alpha1.ReasonRemovingDefinitions && last.Action == uninstall.Wait {
			blocked = true
			if want := "TenantNetwork " + f.namespace + "/kept has example.com/never"; !strings.Contains(last.Message, want) {
				t.Errorf("got %q, want %q in it", last.Message, want)
			}
			f.remove(kept)
		}
		if time.Now().After(end) {
			t.Fatalf("the uninstallation does not end: %+v", last)
		}
	}
	eventually(t, "the definitions to be gone", func(ctx context.Context) error {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(apply.WatchedKinds()[len(apply.WatchedKinds())-1])
		if err := f.admin.List(ctx, list, client.HasLabels{render.InstallationLabel}); err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d definitions are left after the steps %v: %w", len(list.Items), reasons, err)
		}
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(i), i); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Installation is left: %w", err)
		}
		return nil
	})
	f.requireRemoved(t)
	if !blocked {
		t.Errorf("steps: got %v, want %s until the finalizer is removed", reasons, v1alpha1.ReasonRemovingDefinitions)
	}
}

// The program removes what it has installed when a user deletes the Installation, and installs it again.
func TestUninstallByTheOperator(t *testing.T) {
	c := newCluster(t)
	startWorkloads(t, c, 2)
	startOperator(t, c)
	for range 2 {
		i := c.write(t, "{}")
		c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
		c.requireWithdrawn(t)
		if err := c.admin.Delete(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the Installation to be gone", func(ctx context.Context) error {
			if err := c.admin.Get(ctx, client.ObjectKeyFromObject(i), i); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%w: %+v", err, i.Status.Conditions)
			}
			return nil
		})
		(&fleet{cluster: c}).requireRemoved(t)
	}
}

// requireWithdrawn requires that the operator removes the request of an uninstallation that was given up.
func (c *cluster) requireWithdrawn(t *testing.T) {
	t.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: render.Namespace, Name: "patchbayd"}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"earlier"}}}`, v1alpha1.CleanUpAnnotation))
	if err := c.admin.Patch(t.Context(), ds, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the annotation to be removed", func(ctx context.Context) error {
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(ds), ds); err != nil || ds.Annotations[v1alpha1.CleanUpAnnotation] != "" {
			return fmt.Errorf("annotations %v: %w", ds.Annotations, err)
		}
		return nil
	})
}

// end does what happens to the DaemonSet when it is deleted in the foreground.
func (w *workloads) end(ctx context.Context, ds *appsv1.DaemonSet) error {
	pods := &corev1.Pod{}
	if err := w.c.DeleteAllOf(ctx, pods, client.InNamespace(render.Namespace), client.MatchingLabels(ds.Spec.Selector.MatchLabels), client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	ds.Finalizers = nil
	return w.c.Update(ctx, ds)
}
