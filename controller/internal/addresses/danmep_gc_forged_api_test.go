// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A node creates a DanmEp for another node's Pod with its token. The policies allow that, because
// the DanmEp names the node itself. The controller removes the DanmEp, frees its address, and
// reports it.
func TestForgedDanmEpsAreRemoved(t *testing.T) {
	env := apitest.Start(t)
	f := start(t, env)
	ns, mine, evil := env.Namespace(t), f.node(apitest.Name("mine")), f.node(apitest.Name("evil"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: mine.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := env.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	cn := f.network(&v1.IPAMStatus{V4: bitmap(1, 2, 3, 4)})
	daemon := env.As(t, apitest.NodeDaemon(evil.Name))
	endpoint := func(c client.Client, node *corev1.Node, podUID, address string) *v1.DanmEp {
		ep := &v1.DanmEp{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: apitest.Name("ep"), Finalizers: []string{v1.NodeFinalizer}},
			Spec: v1.DanmEpSpec{
				NetworkName: cn.Name, NetworkUID: string(cn.UID), APIType: v1.KindClusterNetwork, EndpointID: "e", CID: "c",
				Pod: "pod", PodUID: podUID, Host: node.Name, HostUID: string(node.UID),
				Interface: v1.DanmEpInterface{Name: "eth1", Address: address},
			},
		}
		if err := c.Create(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ep.Finalizers, ep.ResourceVersion = nil, ""
			_ = env.Client.Update(context.Background(), ep)
			_ = env.Client.Delete(context.Background(), ep)
		})
		return ep
	}
	own := endpoint(env.Client, mine, string(pod.UID), "10.9.0.1/29")
	danm := endpoint(env.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "no-node.example.com"}}, string(pod.UID), "10.9.0.4/29")
	sandbox := endpoint(daemon, evil, "a Pod that was deleted by force", "10.9.0.2/29")
	forged := endpoint(daemon, evil, string(pod.UID), "10.9.0.3/29")

	f.eventually("the forged DanmEp to go", func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(forged), &v1.DanmEp{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get: %w", errors.Join(err, errors.New("it is there")))
	})
	f.eventually("the Event", func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := env.Client.List(ctx, list, client.MatchingFields{"involvedObject.uid": string(pod.UID)}); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == v1.ReasonForgedDanmEp && strings.Contains(e.Message, evil.Name) {
				return nil
			}
		}
		return fmt.Errorf("%d Events on the Pod, none of them is it", len(list.Items))
	})
	f.bits(cn, 1, 2, 4) // others' stay, and their addresses
	for what, ep := range map[string]*v1.DanmEp{"the Pod's own": own, "that of DANM, by the machine's name": danm, "that of a sandbox without a Pod": sandbox} {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(ep), ep); err != nil || ep.DeletionTimestamp != nil {
			t.Errorf("%s: got %+v, %v; want it to stay", what, ep.ObjectMeta, err)
		}
	}
}
