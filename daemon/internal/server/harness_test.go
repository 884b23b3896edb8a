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

// handler is a server's with functions for its methods. It notes what it was
// asked as "ADD c" and "DEL c", in order.
type handler struct {
	add func(context.Context, attach.Request) (*types100.Result, error)
	del func(context.Context, attach.Request) error
	mu  sync.Mutex
	log []string
}

func (h *handler) note(command string, req attach.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, command+" "+req.ContainerID)
}

func (h *handler) calls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.log...)
}

func (h *handler) Add(ctx context.Context, req attach.Request) (*types100.Result, error) {
	h.note("ADD", req)
	if h.add == nil {
		return &types100.Result{CNIVersion: "1.1.0"}, nil
	}
	return h.add(ctx, req)
}

func (h *handler) Del(ctx context.Context, req attach.Request) error {
	h.note("DEL", req)
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

// prepare returns a server's configuration in folders of its own.
func prepare(t *testing.T, h *handler) server.Config {
	t.Helper()
	dir := t.TempDir()
	limits := server.DefaultLimits()
	limits.ReplayInterval = 5 * time.Millisecond
	limits.IOTimeout = time.Minute // on a busy machine
	return server.Config{
		Socket: filepath.Join(dir, "run", "s"), PendingDir: filepath.Join(dir, "pending"),
		Handler: h, Log: testr.New(t), Limits: limits,
	}
}

// start runs a server until the test ends or stop is called, and waits until it
// serves.
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

// call sends one request and wants an answer.
func (d *daemon) call(req *wire.Request) *wire.Response {
	d.t.Helper()
	res, err := wire.Call(d.t.Context(), d.Socket, req)
	if err != nil {
		d.t.Fatalf("%s: %v", req.Command, err)
	}
	return res
}

// request is a good one.
func request(command, id string) *wire.Request {
	return &wire.Request{
		Command: command, ContainerID: id, Netns: "/run/netns/x", IfName: "eth0", Path: "/opt/cni/bin",
		Args:   "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u1",
		Config: config("1.1.0", ""),
	}
}

// config is a configuration with more keys, each ended by a comma.
func config(cniVersion, more string) []byte {
	return fmt.Appendf(nil, `{%s"cniVersion":%q,"name":"patchbay","type":"patchbay"}`, more, cniVersion)
}

// eventually polls until what is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute in vain until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
