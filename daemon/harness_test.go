// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// eventuallyTimeout bounds eventually.
const eventuallyTimeout = 2 * time.Minute

// attemptTimeout bounds one attempt, so that a request that hangs is sent again.
const attemptTimeout = 30 * time.Second

// node is a node with a daemon: its files and its Node object.
type node struct {
	t    testing.TB
	env  *apitest.Env
	name string
	dir  string
	http string
	// metrics is the address of the metrics, and scraper reads them.
	metrics string
	scraper *apitest.Scraper
	args    []string
	// releaseTimeout bounds the release of the warm pool. A busy machine needs more time than a node.
	releaseTimeout time.Duration
}

// newNode creates a node whose daemon has the rights of deployments/. Only one daemon may run at a time,
// because they share the NIC.
func newNode(tb testing.TB, env *apitest.Env) *node {
	tb.Helper()
	n := &node{t: tb, env: env, name: apitest.Name("node"), dir: tb.TempDir(), http: freeAddress(tb), metrics: freeAddress(tb), releaseTimeout: eventuallyTimeout}
	var err error
	if n.scraper, err = env.Scraper(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	if err := env.Client.Create(tb.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}); err != nil {
		tb.Fatal(err)
	}
	n.writeKubeconfig()
	n.write("plugin", []byte("plugin"))
	n.args = []string{
		"--node-name=" + n.name, "--kubeconfig=" + n.path("kubeconfig"), "--namespace=patchbay-system",
		"--socket=" + n.path("run/s"), "--pending-del-dir=" + n.path("pending"), "--journal=" + n.path("journal.db"),
		"--cni-bin-dir=" + n.path("bin"), "--cni-conf-dir=" + n.path("conf"), "--plugin=" + n.path("plugin"),
		"--health-address=" + n.http, "--metrics-address=" + n.metrics, "--debug",
		// Without a warm pool, remaining addresses are leaks. Some tests enable it.
		"--warm-pool-limit=0", "--address-cooldown=0s",
	}
	return n
}

// writeKubeconfig writes a kubeconfig with the rights of the daemon's service account on this node.
func (n *node) writeKubeconfig() {
	n.t.Helper()
	cfg, err := clientcmd.LoadFromFile(n.env.ControlPlane.AdminKubeconfig())
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

// freeAddress returns an address of a random loopback host, which no other process should take.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	host := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
	l, err := net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// path returns the path of a file of the node.
func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// write writes a file of the node.
func (n *node) write(name string, content []byte) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name), content, 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// start runs the daemon until stop or the end of the test.
func (n *node) start() (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.run(ctx) }()
	ended := false
	stop = func() {
		cancel()
		if ended {
			return
		}
		ended = true
		if err := <-done; err != nil {
			n.t.Errorf("the daemon returned %v", err)
		}
	}
	n.t.Cleanup(stop)
	return stop
}

// run runs the daemon until ctx ends.
func (n *node) run(ctx context.Context) error {
	o, err := parseOptions(n.args, n.t.Output())
	if err != nil {
		return err
	}
	o.releaseTimeout = n.releaseTimeout
	return runDaemon(ctx, o, n.t.Output())
}

// awaitReady waits until /readyz returns 200.
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

// callWith is like call, with a context.
func (n *node) callWith(ctx context.Context, command string, p *pod) (*types100.Result, error) {
	n.t.Helper()
	req := &wire.Request{
		Command: command, ContainerID: p.sandbox, Netns: "/run/netns/" + p.sandbox, IfName: "eth0", Path: "/opt/cni/bin:" + n.path("bin"),
		Args:   fmt.Sprintf("K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
		Config: json.RawMessage(`{"cniVersion":"1.0.0","name":"patchbay","type":"patchbay"}`),
	}
	ctx, cancel := context.WithTimeout(ctx, eventuallyTimeout)
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

// eventually calls f until it succeeds. It reports the last failure before its own timeout.
func eventually(tb testing.TB, what string, f func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), eventuallyTimeout)
	defer cancel()
	var last error
	for {
		attempt, end := context.WithTimeout(ctx, attemptTimeout)
		err := f(attempt)
		end()
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited %s for %s: %v", eventuallyTimeout, what, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
