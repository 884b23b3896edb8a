// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serve returns how to connect to a server that runs for the test's time.
func serve(t *testing.T) func() net.Conn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Server{Env: []string{"PATH=" + os.Getenv("PATH"), "WORD=server"}}.Serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return func() net.Conn {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	dial := serve(t)
	type result struct {
		Out, Err string
		Code     int
	}
	big := strings.Repeat("0123456789abcde\n", 100_000)
	cases := map[string]struct {
		reason  string
		request Request
		in      string
		want    result
	}{
		"Streams": {
			reason:  "Both outputs stay apart.",
			request: Request{Args: []string{"sh", "-c", "echo out; echo err >&2"}},
			want:    result{Out: "out\n", Err: "err\n"},
		},
		"Code": {
			reason:  "The exit code is passed on.",
			request: Request{Args: []string{"sh", "-c", "exit 42"}},
			want:    result{Code: 42},
		},
		"Signal": {
			reason:  "A signal is told as a shell does.",
			request: Request{Args: []string{"sh", "-c", "kill -9 $$"}},
			want:    result{Code: 137},
		},
		"Input": {
			reason:  "Input ends, so that cat does; much of it is passed on unchanged.",
			request: Request{Args: []string{"cat"}},
			in:      big,
			want:    result{Out: big},
		},
		"UnreadInput": {
			reason:  "A command need not read its input.",
			request: Request{Args: []string{"true"}},
			in:      big,
		},
		"Environment": {
			reason:  "The request's variables come after the server's.",
			request: Request{Args: []string{"sh", "-c", "echo $WORD; pwd"}, Env: []string{"WORD=client"}, Dir: "/proc"},
			want:    result{Out: "client\n/proc\n"},
		},
		"Background": {
			reason:  "What stays in the background does not keep the caller.",
			request: Request{Args: []string{"sh", "-c", "sleep 3 & echo done"}},
			want:    result{Out: "done\n"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			code, err := Run(t.Context(), dial(), tc.request, Streams{In: strings.NewReader(tc.in), Out: &out, Err: &errOut})
			if err != nil {
				t.Fatalf("%s\nRun: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, result{out.String(), errOut.String(), code}); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRunMissingProgram(t *testing.T) {
	t.Parallel()
	dial := serve(t)
	for _, args := range [][]string{{"/nowhere/program"}, {}} {
		if _, err := Run(t.Context(), dial(), Request{Args: args}, Streams{}); !errors.Is(err, ErrNotStarted) {
			t.Errorf("Run(%v): got %v, want ErrNotStarted", args, err)
		}
	}
}

// A client that goes away takes its command along, with what that has started.
func TestCancelEndsCommand(t *testing.T) {
	t.Parallel()
	dial := serve(t)
	alive := filepath.Join(t.TempDir(), "alive")
	ctx, cancel := context.WithCancel(t.Context())
	ready := writerFunc(func([]byte) { cancel() })
	_, err := Run(ctx, dial(), Request{
		Args: []string{"sh", "-c", `(while :; do touch "$0"; sleep 0.01; done) & echo ready; wait`, alive},
	}, Streams{Out: ready})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Run: got %v, want context.Canceled", err)
	}
	for end := time.Now().Add(time.Minute); ; {
		_ = os.Remove(alive)
		time.Sleep(100 * time.Millisecond) // ten times what the loop needs to make it anew
		if _, err := os.Stat(alive); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the command lives on")
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(data []byte) (int, error) { f(data); return len(data), nil }

func TestLostConnection(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	go func() {
		_, _, _ = readFrame(there)
		_ = there.Close()
	}()
	if _, err := Run(t.Context(), here, Request{Args: []string{"true"}}, Streams{}); !errors.Is(err, ErrLost) {
		t.Errorf("Run: got %v, want ErrLost", err)
	}
}

func TestReadFrame(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		raw    []byte
		want   error
	}{
		"Nothing":   {"An end between frames is an end.", nil, io.EOF},
		"HalfFrame": {"An end within a frame is a fault.", []byte{1, 0, 0, 0, 9, 'x'}, io.ErrUnexpectedEOF},
		"HalfHead":  {"An end within the header is a fault.", []byte{1, 0}, io.ErrUnexpectedEOF},
		"TooLong":   {"A length is checked before memory is taken.", []byte{1, 255, 255, 255, 255}, ErrProtocol},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := readFrame(bytes.NewReader(tc.raw)); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
