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

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

// tryPatience bounds one look, so that a request that hangs is made again.
const tryPatience = 30 * time.Second

// node is a machine with a daemon: its files, and its Node object.
type node struct {
	t    testing.TB
	env  *apitest.Env
	name string
	dir  string
	http string
	// metrics is where they are, and scraper reads them.
	metrics string
	scraper *apitest.Scraper
	args    []string
	// lastWrites bounds the last writes of a daemon that is started; a busy machine
	// needs longer for them than a node has.
	lastWrites time.Duration
}

// newNode prepares a node whose daemon has the rights of deployments/. Only one
// may run at a time: they share the NIC.
func newNode(tb testing.TB, env *apitest.Env) *node {
	tb.Helper()
	n := &node{t: tb, env: env, name: apitest.Name("node"), dir: tb.TempDir(), http: freeAddress(tb), metrics: freeAddress(tb), lastWrites: patience}
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
		"--socket=" + n.path("run/s"), "--pending=" + n.path("pending"), "--journal=" + n.path("journal.db"),
		"--cni-bin-dir=" + n.path("bin"), "--cni-conf-dir=" + n.path("conf"), "--plugin=" + n.path("plugin"),
		"--http-address=" + n.http, "--metrics-address=" + n.metrics, "--debug",
		// What is left tells of leaks: nothing is kept ready, unless a test is about that.
		"--warm-pool-limit=0", "--address-cooldown=0s",
	}
	return n
}

// writeKubeconfig lets the daemon act as its service account on this node.
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

// freeAddress is one that nothing else of this machine would choose before its use.
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
	go func() { done <- n.run(ctx) }()
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

// run is the daemon to its end.
func (n *node) run(ctx context.Context) error {
	o, err := parseOptions(n.args, n.t.Output())
	if err != nil {
		return err
	}
	o.releaseTimeout = n.lastWrites
	return runDaemon(ctx, o, n.t.Output())
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

// eventually polls until f succeeds. It reports the last failure that is not only its own end.
func eventually(tb testing.TB, what string, f func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	var last error
	for {
		try, end := context.WithTimeout(ctx, tryPatience)
		err := f(try)
		end()
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited %s for %s: %v", patience, what, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
