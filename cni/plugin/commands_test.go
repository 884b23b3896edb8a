// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/cni/plugin"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/internal/pending"
)

// host has the directories of a machine, and a daemon after start.
type host struct {
	t      *testing.T
	socket string
	// pending is the directory of recorded DELs.
	pending string
	mu      sync.Mutex
	got     []wire.Request
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	return &host{t: t, socket: filepath.Join(dir, "s"), pending: filepath.Join(dir, "pending")}
}

// start starts a daemon. If answer returns nil, the daemon closes the connection, as if it was killed.
func (h *host) start(answer func(wire.Request) *wire.Response) {
	h.t.Helper()
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.answer(conn, answer)
		}
	}()
}

func (h *host) answer(conn net.Conn, answer func(wire.Request) *wire.Response) {
	defer func() { _ = conn.Close() }()
	var req wire.Request
	if err := wire.ReadFrame(conn, &req); err != nil {
		h.t.Errorf("the daemon cannot read the request: %v", err)
		return
	}
	h.mu.Lock()
	h.got = append(h.got, req)
	h.mu.Unlock()
	if res := answer(req); res != nil {
		if err := wire.WriteFrame(conn, res); err != nil {
			h.t.Errorf("the daemon cannot write the answer: %v", err)
		}
	}
}

func (h *host) requests() []wire.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]wire.Request(nil), h.got...)
}

// outcome is the result of an invocation.
type outcome struct {
	status int
	stdout string
	stderr string
}

// env returns the variables that a runtime sets, with changes; "" unsets a variable.
func env(command string, changes map[string]string) map[string]string {
	e := map[string]string{
		"CNI_COMMAND": command, "CNI_CONTAINERID": "4f5a", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "eth0",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web", "CNI_PATH": "/opt/cni/bin",
	}
	for k, v := range changes {
		if e[k] = v; v == "" {
			delete(e, k)
		}
	}
	return e
}

// config returns a configuration with the host's socket.
func (h *host) config(cniVersion string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":"patchbay","type":"patchbay","socket":%q}`, cniVersion, h.socket)
}

// run invokes the plugin.
func (h *host) run(env map[string]string, stdin string, addWait time.Duration) outcome {
	h.t.Helper()
	var stdout, stderr bytes.Buffer
	p := &plugin.Process{
		LookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Stdin:     strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr,
		PendingDir: h.pending, AddWait: addWait, StatusTimeout: time.Minute,
	}
	status := p.Run(h.t.Context())
	return outcome{status, stdout.String(), stderr.String()}
}

// cniError is a printed error.
type cniError struct {
	CNIVersion string `json:"cniVersion"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// fails returns the error that a failed invocation printed.
func fails(t *testing.T, o outcome) cniError {
	t.Helper()
	var e cniError
	if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || o.status != 1 || e.Code == 0 || e.Msg == "" {
		t.Fatalf("want exit status 1 and a CNI error, got %d and %q (%v)", o.status, o.stdout, err)
	}
	return e
}

// recorded returns the recorded DELs.
func (h *host) recorded() []*wire.Request {
	h.t.Helper()
	names, err := pending.List(h.pending)
	if err != nil {
		h.t.Fatal(err)
	}
	var reqs []*wire.Request
	for _, name := range names {
		req, err := pending.Read(h.pending, name)
		if err != nil {
			h.t.Fatal(err)
		}
		reqs = append(reqs, req)
	}
	return reqs
}

// blockPending creates a file with the name of the directory of DELs.
func (h *host) blockPending() {
	h.t.Helper()
	if err := os.WriteFile(h.pending, nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
}
