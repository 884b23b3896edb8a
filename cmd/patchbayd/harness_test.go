// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

// node is a machine with a daemon: its files, and its Node object.
type node struct {
	t    testing.TB
	env  *apitest.Env
	name string
	dir  string
	http string
	args []string
}

// newNode prepares a node whose daemon has the rights of deployments/. Only one
// may run at a time: they share the NIC.
func newNode(tb testing.TB, env *apitest.Env) *node {
	tb.Helper()
	n := &node{t: tb, env: env, name: apitest.Name("node"), dir: tb.TempDir(), http: freeAddress(tb)}
	if err := env.Client.Create(tb.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}); err != nil {
		tb.Fatal(err)
	}
	n.writeKubeconfig()
	n.write("plugin", []byte("plugin"))
	n.args = []string{
		"--node-name=" + n.name, "--kubeconfig=" + n.path("kubeconfig"), "--namespace=patchbay-system",
		"--socket=" + n.path("run/s"), "--pending=" + n.path("pending"), "--journal=" + n.path("journal.db"),
		"--cni-bin-dir=" + n.path("bin"), "--cni-conf-dir=" + n.path("conf"), "--plugin=" + n.path("plugin"),
		"--http-address=" + n.http, "--debug",
	}
	return n
}

// writeKubeconfig lets the daemon act as its service account on this node.
func (n *node) writeKubeconfig() {
	n.t.Helper()
	cfg, err := clientcmd.LoadFromFile(n.env.Plane.AdminKubeconfig())
	if err != nil {
		n.t.Fatal(err)
	}
	who := apitest.NodeDaemon(n.name)
	for _, user := range cfg.AuthInfos {
		user.Impersonate, user.ImpersonateGroups, user.ImpersonateUserExtra = who.UserName, who.Groups, who.Extra
	}
	if err := clientcmd.WriteToFile(*cfg, n.path("kubeconfig")); err != nil {
		n.t.Fatal(err)
	}
}

func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name string, content []byte) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name), content, 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// start runs the daemon until stop, or the end of the test.
func (n *node) start() (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, n.args, n.t.Output()) }()
	ended := false
	stop = func() {
		cancel()
		if ended {
			return
		}
		ended = true
		if err := <-done; err != nil {
			n.t.Errorf("daemon ended with: %v", err)
		}
	}
	n.t.Cleanup(stop)
	return stop
}

// awaitReady waits until /readyz says so.
func (n *node) awaitReady() {
	n.t.Helper()
	eventually(n.t, "the daemon to be ready", func(context.Context) error {
		res, err := http.Get("http://" + n.http + "/readyz")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	})
}

// call sends one request of the plugin.
func (n *node) call(command string, p *pod) (*types100.Result, error) {
	n.t.Helper()
	return n.callWith(n.t.Context(), command, p)
}

// callWith is call for a poll.
func (n *node) callWith(ctx context.Context, command string, p *pod) (*types100.Result, error) {
	n.t.Helper()
	req := &wire.Request{
		Command: command, ContainerID: p.sandbox, Netns: "/run/netns/" + p.sandbox, IfName: "eth0", Path: "/opt/cni/bin",
		Args:   fmt.Sprintf("K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
		Config: json.RawMessage(`{"cniVersion":"1.0.0","name":"patchbay","type":"patchbay"}`),
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := wire.Call(ctx, n.path("run/s"), req)
	if err != nil {
		return nil, err
	}
	if res.Error != nil {
		return nil, res.Error
	}
	if command != "ADD" {
		return nil, nil
	}
	result := &types100.Result{}
	return result, json.Unmarshal(res.Result, result)
}

// pod is a Pod on the node with a sandbox.
type pod struct {
	*corev1.Pod
	sandbox string
}

// pod creates a Pod that asks for interfaces, and its network namespace.
func (n *node) pod(namespace, interfaces string) *pod {
	n.t.Helper()
	name := apitest.Name("pod")
	p := &pod{sandbox: name, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			v1.InterfacesAnnotation: interfaces,
		}},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}}
	if err := n.env.Client.Create(n.t.Context(), p.Pod); err != nil {
		n.t.Fatal(err)
	}
	if err := ip("netns", "add", p.sandbox); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = ip("netns", "delete", p.sandbox) })
	return p
}

// eth0 is the address of the Pod's first interface, as iproute2 prints them.
func (p *pod) eth0(t *testing.T) string {
	t.Helper()
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
	return fmt.Sprintf("pages=%d held=%q endpoints=%d allocated=%d", pages, holds, len(eps.Items), got.Status.Allocated)
}

// eventually polls until f succeeds.
func eventually(tb testing.TB, what string, f func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited %s for %s: %v", patience, what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// unused waits until nothing of a network is left.
func (n *node) unused(cn *v1.ClusterNetwork) {
	n.t.Helper()
	eventually(n.t, "the network to be unused", func(ctx context.Context) error {
		if got := n.used(ctx, cn); got != "unused" {
			return errors.New(got)
		}
		return nil
	})
}
