// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// home is the controller's namespace.
const home = "patchbay-system"

// startMoving starts a controller that moves DanmEps at once.
func startMoving(t *testing.T, env *apitest.Env) *fixture {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}
	if err := env.Client.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return startWith(t, env, func(cfg *Config) { cfg.Namespace, cfg.StuckDeletionTimeout = home, time.Nanosecond })
}

// forge creates a DanmEp for a Pod that does not exist, as a node with its token can.
func (f *fixture) forge(namespace string, node *corev1.Node, change func(*v1.DanmEp)) *v1.DanmEp {
	f.Helper()
	name := apitest.Name("ep")
	ep := &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{v1.NodeFinalizer}},
		Spec: v1.DanmEpSpec{
			NetworkName: "none", NetworkUID: "none", APIType: v1.KindDanmNet, EndpointID: name, CID: "sandbox",
			Pod: "forged", PodUID: "forged", Host: node.Name, HostUID: string(node.UID),
			Interface: v1.DanmEpInterface{Name: "eth1"},
		},
	}
	change(ep)
	if err := f.env.As(f.T, apitest.NodeDaemon(node.Name)).Create(f.Context(), ep); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _ = kube.RemoveEndpoint(context.Background(), f.env.Client, ep) })
	return ep
}

// deleteNamespace deletes a namespace and the DanmEps in it, as Kubernetes' namespace controller
// does.
func (f *fixture) deleteNamespace(name string, eps ...*v1.DanmEp) {
	f.Helper()
	if err := f.env.Client.Delete(f.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		f.Fatal(err)
	}
	for _, ep := range eps {
		if err := f.env.Client.Delete(f.Context(), ep.DeepCopy()); err != nil {
			f.Fatal(err)
		}
	}
}

// movedCopy waits until a DanmEp is gone, and returns the one that replaced it.
func (f *fixture) movedCopy(ep *v1.DanmEp) *v1.DanmEp {
	f.Helper()
	f.eventually("DanmEp "+ep.Name+" to go", func(ctx context.Context) error {
		err := f.env.Client.Get(ctx, client.ObjectKeyFromObject(ep), &v1.DanmEp{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	list := &v1.DanmEpList{}
	if err := f.env.Client.List(f.Context(), list, client.InNamespace(home)); err != nil {
		f.Fatal(err)
	}
	var moved []*v1.DanmEp
	for i := range list.Items {
		if from, _ := kube.MovedFrom(&list.Items[i]); from == client.ObjectKeyFromObject(ep) {
			moved = append(moved, &list.Items[i])
		}
	}
	if len(moved) != 1 {
		f.Fatalf("%d DanmEps in %s are what %s was, want 1", len(moved), home, ep.Name)
	}
	f.Cleanup(func() { _, _ = kube.RemoveEndpoint(context.Background(), f.env.Client, moved[0]) })
	return moved[0]
}

// nodeEvent waits for an Event on a Node.
func (f *fixture) nodeEvent(node *corev1.Node, reason, text string) {
	f.Helper()
	f.eventually("the Event "+reason, func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := f.env.Client.List(ctx, list, client.MatchingFields{"involvedObject.uid": string(node.UID)}); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("%d Events, none with %q", len(list.Items), text)
	})
}

// A node with its token creates DanmEps without Pods in a namespace that is being deleted. They do
// not block its deletion. Their addresses stay covered until the node removes them, because a
// sandbox may outlive its Pod.
func TestForgedDanmEpsKeepNoNamespace(t *testing.T) {
	env := apitest.Start(t)
	f := startMoving(t, env)
	ns, evil := env.Namespace(t), f.node(apitest.Name("evil"))
	cn := f.network(&v1.IPAMStatus{V4: bitmap(2)})
	covers := f.forge(ns, evil, func(ep *v1.DanmEp) {
		ep.Spec.NetworkName, ep.Spec.NetworkUID, ep.Spec.APIType = cn.Name, string(cn.UID), v1.KindClusterNetwork
		ep.Spec.Interface.Address = "10.9.0.2/29"
	})
	noNetwork := f.forge(ns, evil, func(*v1.DanmEp) {})
	noKind := f.forge(ns, evil, func(ep *v1.DanmEp) { ep.Spec.APIType = "Strange" })
	f.deleteNamespace(ns, covers, noNetwork, noKind)
	f.movedCopy(noNetwork)
	f.movedCopy(noKind)
	moved := f.movedCopy(covers)
	if diff := cmp.Diff(covers.Spec, moved.Spec); diff != "" {
		t.Errorf("spec of the moved DanmEp (-before +after):\n%s", diff)
	}
	f.nodeEvent(evil, v1.ReasonDanmEpMoved, ns+"/"+covers.Name)
	f.annotate(cn, v1.RebuildAnnotation, "now") // an audit, after the move
	f.annotationRemoved(cn, v1.RebuildAnnotation)
	f.bits(cn, 2)
	f.condition(cn, v1.ConditionAddressConflict, "", "", "")
	// The node of a real sandbox removes the DanmEp with its own rights.
	if _, err := kube.RemoveEndpoint(t.Context(), env.As(t, apitest.NodeDaemon(evil.Name)), moved); err != nil {
		t.Fatal(err)
	}
	f.bits(cn)
}

// A DanmEp stays that may belong to a Pod, to a network of the namespace, or to a namespace that
// stays.
func TestDanmEpsThatStay(t *testing.T) {
	env := apitest.Start(t)
	f := startMoving(t, env)
	ns, lasting, node := env.Namespace(t), env.Namespace(t), f.node(apitest.Name("node"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	dn := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "net"}, Spec: v1.NetworkSpec{
		NetworkID: "outlived", NetworkType: "macvlan", Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.9.0.0/29"},
	}}
	for _, obj := range []client.Object{pod, dn} {
		if err := env.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(*v1.DanmEp) {}
	stay := map[string]*v1.DanmEp{
		"ofAPod":     f.forge(ns, node, func(ep *v1.DanmEp) { ep.Spec.Pod, ep.Spec.PodUID = pod.Name, string(pod.UID) }),
		"ofADanmNet": f.forge(ns, node, func(ep *v1.DanmEp) { ep.Spec.NetworkName, ep.Spec.NetworkUID = dn.Name, string(dn.UID) }),
		"ofThatName": f.forge(ns, node, func(ep *v1.DanmEp) { ep.Spec.NetworkName, ep.Spec.NetworkUID = dn.Name, "" }),
		"inAnother":  f.forge(lasting, node, nothing),
	}
	goes := f.forge(ns, node, nothing)
	f.deleteNamespace(ns, stay["ofAPod"], stay["ofADanmNet"], stay["ofThatName"], goes)
	if err := env.Client.Delete(t.Context(), stay["inAnother"].DeepCopy()); err != nil {
		t.Fatal(err)
	}
	f.nodeEvent(node, v1.ReasonDanmEpOrphaned, ns+"/"+stay["ofADanmNet"].Name)
	f.nodeEvent(node, v1.ReasonDanmEpOrphaned, ns+"/"+stay["ofThatName"].Name)
	f.movedCopy(goes)
	for what, ep := range stay {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(ep), &v1.DanmEp{}); err != nil {
			t.Errorf("%s: %v, want it to stay", what, err)
		}
	}
}
