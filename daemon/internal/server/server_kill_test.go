// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/cni/plugin"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/internal/pending"
	"github.com/patchbay-cni/patchbay/test/random"
)

// The daemon is killed at random moments while runtimes add and delete Pods through the plugin. Each
// DEL succeeds, no two Pods have the same address, a successful ADD has its interface, and nothing
// remains at the end.
func TestKilledDaemonLosesNothing(t *testing.T) {
	t.Parallel()
	m := machine(t.TempDir())
	if err := m.make(); err != nil {
		t.Fatal(err)
	}
	const kills, runtimes = 8, 6
	daemon, intN := m.startDaemon(t), random.IntN(t)
	var stop atomic.Bool
	var pods atomic.Int32
	var owners sync.Map
	var wg sync.WaitGroup
	for r := range runtimes {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				m.pod(t, fmt.Sprintf("r%dp%d", r, i), time.Duration(intN(20))*time.Millisecond, &owners)
				pods.Add(1)
			}
		})
	}
	for range kills {
		time.Sleep(time.Duration(20+intN(150)) * time.Millisecond)
		if err := daemon.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = daemon.Wait()
		daemon = m.startDaemon(t)
	}
	stop.Store(true)
	wg.Wait()
	eventually(t, "nothing remains", func() bool { return len(m.remaining(t)) == 0 })
	if err := daemon.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Errorf("the last daemon: %v", err)
	}
	if got := m.remaining(t); len(got) > 0 {
		t.Errorf("got %v at the end, want nothing", got)
	}
	if pods.Load() < runtimes {
		t.Errorf("got %d Pods, want one per runtime at least", pods.Load())
	}
}

// pod runs one Pod as a runtime does: ADD, and DEL after its lifetime, also if the ADD failed. owners
// has the running Pods by address.
func (m machine) pod(t *testing.T, id string, lifetime time.Duration, owners *sync.Map) {
	t.Helper()
	status, out := m.plugin(t.Context(), "ADD", id)
	if status == 0 {
		address := m.attached(t, id, out)
		if other, taken := owners.LoadOrStore(address, id); taken {
			t.Errorf("%s and %s have the address %s", id, other, address)
		}
		time.Sleep(lifetime)
		owners.Delete(address)
	} else if !tryAgain(out) {
		t.Errorf("ADD of %s: %s", id, out)
	}
	for attempts := 0; ; attempts++ {
		status, out := m.plugin(t.Context(), "DEL", id)
		if status == 0 {
			return
		}
		// Kubelet repeats a DEL that may succeed later.
		if attempts == 50 || !tryAgain(out) {
			t.Errorf("DEL of %s: %s", id, out)
			return
		}
	}
}

// attached returns the address of a Pod whose ADD succeeded.
func (m machine) attached(t *testing.T, id, out string) string {
	t.Helper()
	if _, err := os.Stat(m.file("links", id)); err != nil {
		t.Errorf("ADD of %s succeeded without an interface: %s", id, out)
	}
	var result struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.IPs) != 1 {
		t.Errorf("ADD of %s: want one address, got %s (%v)", id, out, err)
		return id
	}
	return result.IPs[0].Address
}

// tryAgain reports whether the output is error 11.
func tryAgain(out string) bool {
	var e wire.Error
	return json.Unmarshal([]byte(out), &e) == nil && e.Code == wire.CodeTryAgain
}

// plugin runs the plugin in this process.
func (m machine) plugin(ctx context.Context, command, id string) (int, string) {
	return m.invoke(ctx, command, id, "1.0.0")
}

// invoke runs the plugin with a configuration in that version.
func (m machine) invoke(ctx context.Context, command, id, cniVersion string) (int, string) {
	env := map[string]string{
		"CNI_COMMAND": command, "CNI_CONTAINERID": id, "CNI_NETNS": "/run/netns/" + id, "CNI_IFNAME": "eth0",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + id + ";K8S_POD_UID=" + id,
	}
	var out bytes.Buffer
	p := &plugin.Process{
		LookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Stdin: strings.NewReader(fmt.Sprintf(
			`{"cniVersion":%q,"name":"patchbay","type":"patchbay","socket":%q}`, cniVersion, m.socket())),
		Stdout: &out, PendingDir: m.pending(), AddWait: time.Minute, StatusTimeout: plugin.DefaultStatusTimeout,
	}
	return p.Run(ctx), out.String()
}

// startDaemon runs daemonMain in a process of its own.
func (m machine) startDaemon(t *testing.T) *exec.Cmd {
	t.Helper()
	daemon := exec.Command(os.Args[0])
	daemon.Env = append(os.Environ(), machineVariable+"="+string(m))
	daemon.Stderr = os.Stderr
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill() })
	return daemon
}

// remaining lists what the DELs should have removed.
func (m machine) remaining(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, kind := range []string{"links", "addresses", "records"} {
		found, err := filepath.Glob(m.file(kind, "*"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	names, err := pending.List(m.pending())
	if err != nil {
		t.Fatal(err)
	}
	return append(all, names...)
}
