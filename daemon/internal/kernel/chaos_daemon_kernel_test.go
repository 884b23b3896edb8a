// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// The chaos test runs its daemon as a process, to kill it with SIGKILL: this test binary with
// chaosDir set. The daemon reads networks and records from a file of that directory, as the real
// one reads its cache and its journal.
const (
	chaosDir  = "PATCHBAY_CHAOS_DIR"
	chaosHost = "PATCHBAY_CHAOS_HOST"
)

// input has the networks, and the links that Pods use.
type input struct {
	Networks []*network.Network
	Nodes    []string // VTEPs of other nodes, on ens4
	Used     []network.Link
}

// files reads the chaos test's input from disk, on each call.
type files struct {
	dir string

	mu     sync.Mutex
	status *v1.NodeNetworkStatus
}

func (f *files) read() (input, error) {
	var w input
	text, err := os.ReadFile(filepath.Join(f.dir, "input"))
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	return w, err
}

// write replaces the file atomically.
func (f *files) write(w input) error {
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.dir, "new"), text, 0o600); err != nil {
		return err
	}
	return os.Rename(filepath.Join(f.dir, "new"), filepath.Join(f.dir, "input"))
}

func (f *files) Networks(context.Context) ([]*network.Network, error) {
	w, err := f.read()
	return w.Networks, err
}

func (f *files) NodeNetworks(context.Context) ([]v1.NodeNetwork, error) {
	w, err := f.read()
	if err != nil {
		return nil, err
	}
	all := nodesAt(w.Nodes)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status != nil {
		all = append(all, v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Status: *f.status})
	}
	return all, nil
}

func nodesAt(vteps []string) []v1.NodeNetwork {
	var all []v1.NodeNetwork
	for _, a := range vteps {
		all = append(all, otherNode(a, a))
	}
	return all
}

func (f *files) WriteStatus(_ context.Context, s v1.NodeNetworkStatus) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = &s
	return nil
}

func (f *files) Links() (map[network.Link]bool, error) {
	w, err := f.read()
	if err != nil {
		return nil, err
	}
	used := map[network.Link]bool{}
	for _, id := range w.Used {
		used[id] = true
	}
	return used, nil
}

// TestChaosDaemon is the daemon that TestLinkChaos starts with chaosDir set; it is no test.
func TestChaosDaemon(t *testing.T) {
	dir := os.Getenv(chaosDir)
	if dir == "" {
		return
	}
	f := &files{dir: dir}
	r := netwatcher.New(netwatcher.Config{
		Node: "self", Kernel: openKernel(t, os.Getenv(chaosHost)).Links(), Firewall: openFirewall(t, os.Getenv(chaosHost)), SourceGuard: openGuard(t, os.Getenv(chaosHost)), KubeClient: f, Pods: f, Log: logr.Discard(),
	})
	go func() { // like a watch of the API server
		var last time.Time
		for ; ; time.Sleep(20 * time.Millisecond) {
			if info, err := os.Stat(filepath.Join(dir, "input")); err == nil && !info.ModTime().Equal(last) {
				last = info.ModTime()
				r.Trigger()
			}
		}
	}()
	t.Fatal(r.Run(context.Background()))
}

// daemon is the process of the chaos test's daemon.
type daemon struct {
	t         *testing.T
	dir, host string
	cmd       *exec.Cmd
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(os.Args[0], "-test.run=^TestChaosDaemon$")
	d.cmd.Env = append(os.Environ(), chaosDir+"="+d.dir, chaosHost+"="+d.host)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}
