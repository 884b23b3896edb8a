// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

// serve listens on a new socket and calls handle for each connection.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
			_ = conn.Close()
		}
	}()
	return path
}

func TestCall(t *testing.T) {
	t.Parallel()
	answer := wire.Response{Error: &wire.Error{Code: wire.CodeConfig, Msg: "no such network", Details: "x"}}
	cases := map[string]struct {
		reason string
		handle func(net.Conn)
		want   *wire.Response
		err    error
	}{
		"Answer": {
			reason: "A connection has one request and one answer.",
			handle: func(c net.Conn) {
				var req wire.Request
				if wire.ReadFrame(c, &req) == nil && req.Command == "ADD" {
					_ = wire.WriteFrame(c, answer)
				}
			},
			want: &answer,
		},
		"EndBeforeRequest": {
			reason: "A daemon that stops closes connections that it has not read.",
			handle: func(net.Conn) {},
			err:    wire.ErrUnavailable,
		},
		"EndBeforeAnswer": {
			reason: "The daemon was killed after it had read the request.",
			handle: func(c net.Conn) { _ = wire.ReadFrame(c, &wire.Request{}) },
			err:    wire.ErrUnavailable,
		},
		"EndWithinAnswer": {
			reason: "The answer is truncated.",
			handle: func(c net.Conn) {
				_ = wire.ReadFrame(c, &wire.Request{})
				_, _ = c.Write(frame(20, "{"))
			},
			err: wire.ErrUnavailable,
		},
		"OtherProtocol": {
			reason: "Another program listens on the socket: a retry cannot succeed.",
			handle: func(c net.Conn) {
				_ = wire.ReadFrame(c, &wire.Request{})
				_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
			},
			err: wire.ErrFrame,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := wire.Call(t.Context(), serve(t, tc.handle), &wire.Request{Command: "ADD"})
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s Call got error %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s Call: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCallWithoutDaemon(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := wire.Call(t.Context(), missing, &wire.Request{}); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("missing socket: got %v, want ErrUnavailable", err)
	}
	stale := filepath.Join(t.TempDir(), "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	_, err = wire.Call(t.Context(), stale, &wire.Request{})
	if !errors.Is(err, wire.ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("socket that a killed daemon left: got %v, want ErrUnavailable and its cause", err)
	}
}

// A daemon that does not answer is not unavailable: the call ends with the deadline.
func TestCallDeadline(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	defer close(done)
	socket := serve(t, func(net.Conn) { <-done })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := wire.Call(ctx, socket, &wire.Request{Command: "ADD"})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("Call of a daemon that does not answer: got %v, want the deadline", err)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	e := &wire.Error{Code: 7, Msg: "refuse network", Details: "it is full"}
	if got := e.Error(); got != "refuse network: it is full" {
		t.Errorf("Error with details: got %q", got)
	}
	e.Details = ""
	if got := e.Error(); got != "refuse network" {
		t.Errorf("Error without details: got %q", got)
	}
}
