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
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// pod is a Pod on the node with a sandbox.
type pod struct {
	*corev1.Pod
	sandbox string
}

// pod creates a Pod that requests interfaces, and the network namespace of its sandbox.
func (n *node) pod(namespace, interfaces string) *pod {
	n.t.Helper()
	p, err := n.podWith(n.t.Context(), namespace, interfaces)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// podWith is like pod, for other goroutines. It retries until the API server answers.
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
		if apierrors.IsAlreadyExists(err) { // the answer to an earlier attempt was lost
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

// newSandbox replaces the Pod's sandbox after a failed ADD.
func (p *pod) newSandbox() error {
	_ = ip("netns", "delete", p.sandbox)
	p.sandbox = apitest.Name(p.Name)
	return ip("netns", "add", p.sandbox)
}

// macvlans lists the MACVLAN links in the node's network namespace.
func macvlans(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-o", "link", "show", "type", "macvlan").CombinedOutput()
	if err != nil {
		t.Fatalf("ip link: %v: %s", err, out)
	}
	return string(out)
}

// eth0 returns the address of the Pod's first interface, or the error of iproute2.
func (p *pod) eth0(tb testing.TB) string {
	tb.Helper()
	out, err := exec.Command("ip", "-n", p.sandbox, "-o", "-4", "address", "show", "dev", "eth0").CombinedOutput()
	if err != nil {
		return strings.TrimSpace(string(out))
	}
	return strings.Fields(string(out))[3]
}

// network creates a ClusterNetwork of type macvlan on ens4.
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

// used describes the network's status and DanmEps. It returns "unused" when no address is in use.
func (n *node) used(ctx context.Context, cn *v1.ClusterNetwork) string {
	got := &v1.ClusterNetwork{}
	if err := n.env.Client.Get(ctx, client.ObjectKeyFromObject(cn), got); err != nil {
		return err.Error()
	}
	eps := &v1.DanmEpList{}
	if err := n.env.Client.List(ctx, eps, client.MatchingFields{"spec.NetworkName": cn.Name}); err != nil {
		return err.Error()
	}
	pages, ipam := 0, got.Status.IPAM.DeepCopy()
	if ipam == nil {
		ipam = &v1.IPAMStatus{}
	}
	if ipam.V4 != nil {
		pages = len(ipam.V4.Pages)
	}
	entries := ""
	for _, e := range ipam.Held {
		entries += e.V4 + e.V6
	}
	if pages == 0 && entries == "" && len(eps.Items) == 0 && ipamtest.Allocated(ipam) == 0 {
		return "unused"
	}
	return fmt.Sprintf("network %s: %d endpoints, allocated %d, entries %v, IPv4 %+v",
		cn.Name, len(eps.Items), ipamtest.Allocated(ipam), ipam.Held, ipam.V4)
}

// awaitUnused waits until no address of a network is in use.
func (n *node) awaitUnused(cn *v1.ClusterNetwork) {
	n.t.Helper()
	eventually(n.t, "the network to be unused", func(ctx context.Context) error {
		if got := n.used(ctx, cn); got != "unused" {
			return errors.New(got)
		}
		return nil
	})
}
