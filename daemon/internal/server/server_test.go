// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/internal/heartbeat"
)

// Only root can use the socket, and only the heartbeat file remains after the end.
func TestSocketMode(t *testing.T) {
	t.Parallel()
	d := start(t, newConfig(t, &fakeHandler{}))
	info, err := os.Lstat(d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode(), fs.ModeSocket|0o600; got != want {
		t.Errorf("mode of the socket: got %v, want %v", got, want)
	}
	if err := d.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	remaining, err := filepath.Glob(filepath.Dir(d.Socket) + "/*")
	if err != nil || len(remaining) != 1 || remaining[0] != wire.HeartbeatPath(d.Socket) {
		t.Errorf("files after the end: got %v and error %v, want only the heartbeat file", remaining, err)
	}
}

// The socket of a killed daemon is replaced.
func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	c := newConfig(t, &fakeHandler{})
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	_ = killed.Close()
	start(t, c).call(&wire.Request{Command: "STATUS"})
}

// Run replaces neither the socket of a running daemon nor another file.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	c := newConfig(t, &fakeHandler{})
	d := start(t, c)
	if err := server.New(c).Run(t.Context()); !errors.Is(err, server.ErrInUse) {
		t.Errorf("Run with the socket of a running daemon: got %v, want ErrInUse", err)
	}
	d.call(&wire.Request{Command: "STATUS"})

	file := newConfig(t, &fakeHandler{})
	if err := os.MkdirAll(filepath.Dir(file.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file.Socket, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.New(file).Run(t.Context()); !errors.Is(err, server.ErrInUse) {
		t.Errorf("Run with a file at the path: got %v, want ErrInUse", err)
	}
	if got, err := os.ReadFile(file.Socket); err != nil || string(got) != "content" {
		t.Errorf("file after Run: got %q and error %v, want it unchanged", got, err)
	}
}

// A stopping daemon does not remove the socket of the next one.
func TestStopLeavesTheNextSocket(t *testing.T) {
	t.Parallel()
	d := start(t, newConfig(t, &fakeHandler{}))
	if err := os.Remove(d.Socket); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(d.Socket); err != nil {
		t.Errorf("file of the next daemon: %v", err)
	}
}

// The heartbeat file is written at intervals and at the end.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	c := newConfig(t, &fakeHandler{})
	c.Limits.HeartbeatInterval = time.Millisecond
	d := start(t, c)
	path := wire.HeartbeatPath(c.Socket)
	for _, when := range []string{"after the start", "again"} {
		eventually(t, "the heartbeat file exists "+when, func() bool {
			age, err := heartbeat.Age(path)
			return err == nil && age < time.Minute
		})
		_ = os.Remove(path)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if age, err := heartbeat.Age(path); err != nil || age > time.Minute {
		t.Errorf("heartbeat file after the end: got age %v and error %v, want a recent one", age, err)
	}
}

// A malformed or incomplete frame gets a decoding error.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	c := newConfig(t, &fakeHandler{})
	c.Limits.IOTimeout = 2 * time.Second // also bounds the response
	d := start(t, c)
	cases := map[string]struct{ reason, send string }{
		"NotAFrame": {"The client speaks another protocol.", "GET / HTTP/1.1\r\n\r\n"},
		"NotJSON":   {"The frame has no JSON.", "\x00\x00\x00\x02{]"},
		"Slow":      {"The frame is incomplete.", "\x00\x00\x00\x20{"},
		"Silent":    {"The client sends nothing.", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("unix", d.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, tc.send); err != nil {
				t.Fatal(err)
			}
			var res wire.Response
			if err := wire.ReadFrame(conn, &res); err != nil || res.Error == nil || res.Error.Code != wire.CodeDecode {
				t.Errorf("%s: got %+v, %v, want error %d", tc.reason, res, err, wire.CodeDecode)
			}
		})
	}
}

// blockingHandler returns a handler whose ADDs wait until release is closed or their context ends.
// started receives the container ID of each.
func blockingHandler() (h *fakeHandler, started chan string, release chan struct{}) {
	started, release = make(chan string, 100), make(chan struct{})
	wait := func(ctx context.Context, req attach.Request) error {
		started <- req.ContainerID
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			started <- "ended " + req.ContainerID
			return context.Cause(ctx)
		}
	}
	h = &fakeHandler{add: func(ctx context.Context, req attach.Request) (*types100.Result, error) {
		return fullResult(), wait(ctx, req)
	}}
	return h, started, release
}

// callResult is the result of a call.
type callResult struct {
	res *wire.Response
	err error
}

// callAsync sends a request in the background.
func (d *daemon) callAsync(ctx context.Context, req *wire.Request) chan callResult {
	out := make(chan callResult, 1)
	go func() {
		res, err := wire.Call(ctx, d.Socket, req)
		out <- callResult{res, err}
	}()
	return out
}

// A stopping daemon completes the requests in progress, and takes no new ones.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	h, started, release := blockingHandler()
	d := start(t, newConfig(t, h))
	inProgress := d.callAsync(t.Context(), newRequest("ADD", "c1"))
	<-started
	idle, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	ended := make(chan error, 1)
	go func() { ended <- d.stop() }()
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection without a request: got %v, want it closed", err)
	}
	if _, err := wire.Call(t.Context(), d.Socket, newRequest("ADD", "c2")); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("new request: got %v, want ErrUnavailable", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("Run returned %v before the end of its request", err)
	default:
	}
	close(release)
	if got := <-inProgress; got.err != nil || got.res.Error != nil || len(got.res.Result) == 0 {
		t.Errorf("request in progress: got %+v, want its result", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A request that exceeds the shutdown grace period is canceled.
func TestShutdownGracePeriod(t *testing.T) {
	t.Parallel()
	h, started, _ := blockingHandler()
	c := newConfig(t, h)
	c.Limits.ShutdownGracePeriod = time.Millisecond
	d := start(t, c)
	inProgress := d.callAsync(t.Context(), newRequest("ADD", "c1"))
	<-started
	if err := d.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := <-inProgress; got.err != nil || got.res.Error == nil || got.res.Error.Code != wire.CodeTryAgain {
		t.Errorf("request after the grace period: got %+v, want error 11", got)
	}
}

// A runtime that gives up kills its plugin. The context of the ADD ends, so that it is rolled back.
func TestHangUpEndsAdd(t *testing.T) {
	t.Parallel()
	h, started, _ := blockingHandler()
	d := start(t, newConfig(t, h))
	ctx, cancel := context.WithCancel(t.Context())
	got := d.callAsync(ctx, newRequest("ADD", "c1"))
	<-started
	cancel()
	<-got
	if event := <-started; event != "ended c1" {
		t.Errorf("got event %q, want the end of the handler's context", event)
	}
}

// A request that exceeds its timeout is canceled.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	h, started, _ := blockingHandler()
	c := newConfig(t, h)
	c.Limits.RequestTimeout = 2 * time.Second // long enough for the handler to start
	d := start(t, c)
	if got := <-d.callAsync(t.Context(), newRequest("ADD", "c1")); got.res == nil || got.res.Error == nil || got.res.Error.Code != wire.CodeTryAgain {
		t.Errorf("request after its timeout: got %+v, want error 11", got)
	}
	<-started
}

// ADDs that wait for an address do not block the DEL that frees one.
func TestSlots(t *testing.T) {
	t.Parallel()
	h, started, release := blockingHandler()
	c := newConfig(t, h)
	c.Limits.MaxAdds, c.Limits.MaxDels = 2, 1
	d := start(t, c)
	var adds []chan callResult
	for _, id := range []string{"c1", "c2", "c3"} {
		adds = append(adds, d.callAsync(t.Context(), newRequest("ADD", id)))
	}
	<-started
	<-started
	if res := d.call(newRequest("DEL", "c4")); res.Error != nil {
		t.Errorf("DEL while ADDs wait: %v", res.Error)
	}
	if n := len(started); n != 0 {
		t.Errorf("got a third ADD in progress, want at most 2")
	}
	close(release)
	for _, add := range adds {
		if got := <-add; got.err != nil || got.res.Error != nil {
			t.Errorf("ADD: got %+v, want its result", got)
		}
	}
}
