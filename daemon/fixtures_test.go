// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// pod is a Pod on the node with a sandbox.
type pod struct {
	*corev1.Pod
	sandbox string
}

// pod creates a Pod that asks for interfaces, and its network namespace.
func (n *node) pod(namespace, interfaces string) *pod {
	n.t.Helper()
	p, err := n.podWith(n.t.Context(), namespace, interfaces)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// podWith is pod for another goroutine. It asks until the API server answers.
func (n *node) podWith(ctx context.Context, namespace, interfaces string) (*pod, error) {
	name := apitest.Name("pod")
	p := &pod{sandbox: name, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			v1.InterfacesAnnotation: interfaces,
		}},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}}
	for {
		err := n.env.Client.Create(ctx, p.Pod)
		if err == nil {
			break
		}
		if apierrors.IsAlreadyExists(err) { // the answer was lost
			if err := n.env.Client.Get(ctx, client.ObjectKeyFromObject(p.Pod), p.Pod); err == nil {
				break
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("create Pod: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	n.t.Cleanup(func() { _ = ip("netns", "delete", p.sandbox) })
	return p, ip("netns", "add", p.sandbox)
}

// again gives the Pod another sandbox in place of one whose ADD failed.
func (p *pod) again() error {
	_ = ip("netns", "delete", p.sandbox)
	p.sandbox = apitest.Name(p.Name)
	return ip("netns", "add", p.sandbox)
}

// macvlans lists the slaves in the node's own namespace; there should be none.
func macvlans(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-o", "link", "show", "type", "macvlan").CombinedOutput()
	if err != nil {
		t.Fatalf("ip link: %v: %s", err, out)
	}
	return string(out)
}

// eth0 is the address of the Pod's first interface, as iproute2 prints them.
func (p *pod) eth0(tb testing.TB) string {
	tb.Helper()
	out, err := exec.Command("ip", "-n", p.sandbox, "-o", "-4", "address", "show", "dev", "eth0").CombinedOutput()
	if err != nil {
		return strings.TrimSpace(string(out))
	}
	return strings.Fields(string(out))[3]
}

// network creates a ClusterNetwork of MACVLAN slaves of ens4.
func (n *node) network(cidr string) *v1.ClusterNetwork {
	n.t.Helper()
	name := apitest.Name("net")
	cn := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.NetworkSpec{NetworkID: "n" + name[len(name)-8:], NetworkType: "macvlan",
			Options: v1.NetworkOptions{Device: "ens4", CIDR: cidr}},
	}
	if err := n.env.Client.Create(n.t.Context(), cn); err != nil {
		n.t.Fatal(err)
	}
	return cn
}

// used returns what the network's status and its DanmEps say; "unused" when
// nothing of it is left.
func (n *node) used(ctx context.Context, cn *v1.ClusterNetwork) string {
	got := &v1.ClusterNetwork{}
	if err := n.env.Client.Get(ctx, client.ObjectKeyFromObject(cn), got); err != nil {
		return err.Error()
	}
	eps := &v1.DanmEpList{}
	if err := n.env.Client.List(ctx, eps, client.MatchingFields{"spec.NetworkName": cn.Name}); err != nil {
		return err.Error()
	}
	pages, held := 0, got.Status.IPAM.DeepCopy()
	if held == nil {
		held = &v1.IPAMStatus{}
	}
	if held.V4 != nil {
		pages = len(held.V4.Pages)
	}
	holds := ""
	for _, h := range held.Held {
		holds += h.V4 + h.V6
	}
	if pages == 0 && holds == "" && len(eps.Items) == 0 && got.Status.Allocated == 0 {
		return "unused"
	}
	return fmt.Sprintf("network %s: %d endpoints, allocated %d, held %v, IPv4 %+v",
		cn.Name, len(eps.Items), got.Status.Allocated, held.Held, held.V4)
}

// awaitUnused waits until nothing of a network is left.
func (n *node) awaitUnused(cn *v1.ClusterNetwork) {
	n.t.Helper()
	eventually(n.t, "the network to be unused", func(ctx context.Context) error {
		if got := n.used(ctx, cn); got != "unused" {
			return errors.New(got)
		}
		return nil
	})
}
