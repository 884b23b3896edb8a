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

	"github.com/patchbay-cni/patchbay/cni/alive"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
)

func TestSocketIsRoots(t *testing.T) {
	t.Parallel()
	d := start(t, prepare(t, &handler{}))
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
	left, err := filepath.Glob(filepath.Dir(d.Socket) + "/*")
	if err != nil || len(left) != 1 || left[0] != wire.HeartbeatPath(d.Socket) {
		t.Errorf("after the end: got %v, %v, want the heartbeat only", left, err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	c := prepare(t, &handler{})
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

func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	c := prepare(t, &handler{})
	d := start(t, c)
	if err := server.New(c).Run(t.Context()); !errors.Is(err, server.ErrInUse) {
		t.Errorf("Run beside another daemon: got %v, want ErrInUse", err)
	}
	d.call(&wire.Request{Command: "STATUS"})

	file := prepare(t, &handler{})
	if err := os.MkdirAll(filepath.Dir(file.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file.Socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.New(file).Run(t.Context()); !errors.Is(err, server.ErrInUse) {
		t.Errorf("Run where a file is: got %v, want ErrInUse", err)
	}
	if got, err := os.ReadFile(file.Socket); err != nil || string(got) != "precious" {
		t.Errorf("the file: got %q, %v", got, err)
	}
}

// A daemon that stops late leaves its successor's socket alone.
func TestStopLeavesTheNextSocket(t *testing.T) {
	t.Parallel()
	d := start(t, prepare(t, &handler{}))
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
		t.Errorf("the other's file: %v", err)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	c := prepare(t, &handler{})
	c.Limits.HeartbeatInterval = time.Millisecond
	d := start(t, c)
	path := wire.HeartbeatPath(c.Socket)
	for _, when := range []string{"after the start", "again"} {
		eventually(t, "the heartbeat is there "+when, func() bool {
			age, err := alive.Age(path)
			return err == nil && age < time.Minute
		})
		_ = os.Remove(path)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if age, err := alive.Age(path); err != nil || age > time.Minute {
		t.Errorf("the last heartbeat: got %v, %v, want one at the end", age, err)
	}
}

func TestBadFrames(t *testing.T) {
	t.Parallel()
	c := prepare(t, &handler{})
	c.Limits.IOTimeout = 2 * time.Second // for the answer, too
	d := start(t, c)
	cases := map[string]struct{ reason, send string }{
		"NotAFrame": {"another protocol", "GET / HTTP/1.1\r\n\r\n"},
		"NotJSON":   {"a frame of something else", "\x00\x00\x00\x02{]"},
		"Slow":      {"half a frame and then nothing", "\x00\x00\x00\x20{"},
		"Silent":    {"nothing at all", ""},
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

// blocked is a handler whose ADDs wait until release is closed or their context
// ends; started gets one value for each.
func blocked() (h *handler, started chan string, release chan struct{}) {
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
	h = &handler{add: func(ctx context.Context, req attach.Request) (*types100.Result, error) {
		return full(), wait(ctx, req)
	}}
	return h, started, release
}

// answer is what a call returned.
type answer struct {
	res *wire.Response
	err error
}

// later calls in the background.
func (d *daemon) later(ctx context.Context, req *wire.Request) chan answer {
	out := make(chan answer, 1)
	go func() {
		res, err := wire.Call(ctx, d.Socket, req)
		out <- answer{res, err}
	}()
	return out
}

// Who was in work when the daemon stops gets an answer; who was not is away.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	h, started, release := blocked()
	d := start(t, prepare(t, h))
	inWork := d.later(t.Context(), request("ADD", "c1"))
	<-started
	idle, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	ended := make(chan error, 1)
	go func() { ended <- d.stop() }()
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection without a request: got %v, want its end", err)
	}
	if _, err := wire.Call(t.Context(), d.Socket, request("ADD", "c2")); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("a new request: got %v, want ErrAway", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("Run ended before its request: %v", err)
	default:
	}
	close(release)
	if got := <-inWork; got.err != nil || got.res.Error != nil || len(got.res.Result) == 0 {
		t.Errorf("the request in work: got %+v, want its result", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestGraceEnds(t *testing.T) {
	t.Parallel()
	h, started, _ := blocked()
	c := prepare(t, h)
	c.Limits.ShutdownGracePeriod = time.Millisecond
	d := start(t, c)
	inWork := d.later(t.Context(), request("ADD", "c1"))
	<-started
	if err := d.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := <-inWork; got.err != nil || got.res.Error == nil || got.res.Error.Code != wire.CodeTryAgain {
		t.Errorf("a request that takes too long: got %+v, want error 11", got)
	}
}

// A runtime that gives up kills its plugin: the ADD ends and is rolled back.
func TestHangUpEndsAdd(t *testing.T) {
	t.Parallel()
	h, started, _ := blocked()
	d := start(t, prepare(t, h))
	ctx, cancel := context.WithCancel(t.Context())
	got := d.later(ctx, request("ADD", "c1"))
	<-started
	cancel()
	<-got
	if what := <-started; what != "ended c1" {
		t.Errorf("the handler: got %q, want the end of its context", what)
	}
}

func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	h, started, _ := blocked()
	c := prepare(t, h)
	c.Limits.RequestTimeout = 2 * time.Second // one that ends before its handler begins would not show it
	d := start(t, c)
	if got := <-d.later(t.Context(), request("ADD", "c1")); got.res == nil || got.res.Error == nil || got.res.Error.Code != wire.CodeTryAgain {
		t.Errorf("a request that hangs: got %+v, want error 11", got)
	}
	<-started
}

// ADDs that wait for an address do not keep out the DEL that would free one.
func TestPlaces(t *testing.T) {
	t.Parallel()
	h, started, release := blocked()
	c := prepare(t, h)
	c.Limits.MaxAdds, c.Limits.MaxDels = 2, 1
	d := start(t, c)
	var adds []chan answer
	for _, id := range []string{"c1", "c2", "c3"} {
		adds = append(adds, d.later(t.Context(), request("ADD", id)))
	}
	<-started
	<-started
	if res := d.call(request("DEL", "c4")); res.Error != nil {
		t.Errorf("DEL beside ADDs that wait: %v", res.Error)
	}
	if n := len(started); n != 0 {
		t.Errorf("a third ADD is in work, 2 are allowed")
	}
	close(release)
	for _, add := range adds {
		if got := <-add; got.err != nil || got.res.Error != nil {
			t.Errorf("ADD: got %+v, want its result", got)
		}
	}
}
