// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr/testr"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
)

// fakeHandler is a Handler that records its calls in order, as "ADD c" and "DEL c".
type fakeHandler struct {
	add func(context.Context, attach.Request) (*types100.Result, error)
	del func(context.Context, attach.Request) error
	mu  sync.Mutex
	log []string
}

// record records a call.
func (h *fakeHandler) record(command string, req attach.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, command+" "+req.ContainerID)
}

// calls returns the recorded calls.
func (h *fakeHandler) calls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.log...)
}

// Add implements server.Handler.
func (h *fakeHandler) Add(ctx context.Context, req attach.Request) (*types100.Result, error) {
	h.record("ADD", req)
	if h.add == nil {
		return &types100.Result{CNIVersion: "1.1.0"}, nil
	}
	return h.add(ctx, req)
}

// Del implements server.Handler.
func (h *fakeHandler) Del(ctx context.Context, req attach.Request) error {
	h.record("DEL", req)
	if h.del == nil {
		return nil
	}
	return h.del(ctx, req)
}

// daemon is a running server.
type daemon struct {
	t *testing.T
	server.Config
	stop func() error
}

// newConfig returns a configuration in folders of its own.
func newConfig(t *testing.T, h *fakeHandler) server.Config {
	t.Helper()
	dir := t.TempDir()
	limits := server.DefaultLimits()
	limits.ReplayInterval = 5 * time.Millisecond
	limits.IOTimeout = time.Minute // the machine may be busy
	return server.Config{
		Socket: filepath.Join(dir, "run", "s"), PendingDir: filepath.Join(dir, "pending"),
		Handler: h, Log: testr.New(t), Limits: limits,
	}
}

// start runs a server until the test ends or stop is called. It returns when the server answers.
func start(t *testing.T, c server.Config) *daemon {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.New(c).Run(ctx) }()
	d := &daemon{t: t, Config: c, stop: sync.OnceValue(func() error { cancel(); return <-ended })}
	t.Cleanup(func() { _ = d.stop() })
	eventually(t, "the server answers", func() bool {
		_, err := wire.Call(t.Context(), c.Socket, &wire.Request{Command: "STATUS"})
		return err == nil
	})
	return d
}

// call sends one request and returns its response.
func (d *daemon) call(req *wire.Request) *wire.Response {
	d.t.Helper()
	res, err := wire.Call(d.t.Context(), d.Socket, req)
	if err != nil {
		d.t.Fatalf("%s: %v", req.Command, err)
	}
	return res
}

// newRequest returns a valid request.
func newRequest(command, id string) *wire.Request {
	return &wire.Request{
		Command: command, ContainerID: id, Netns: "/run/netns/x", IfName: "eth0", Path: "/opt/cni/bin",
		Args:   "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u1",
		Config: newNetConf("1.1.0", ""),
	}
}

// newNetConf returns a network configuration. extraKeys are JSON keys, each followed by a comma.
func newNetConf(cniVersion, extraKeys string) []byte {
	return fmt.Appendf(nil, `{%s"cniVersion":%q,"name":"patchbay","type":"patchbay"}`, extraKeys, cniVersion)
}

// eventually polls until condition is true, and fails the test after a minute.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
