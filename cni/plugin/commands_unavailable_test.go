// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/cni/plugin"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/internal/heartbeat"
)

// An ADD during a restart waits for the new daemon.
func TestAddWaitsForARestart(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		before func(*host)
	}{
		"Missing": {"The socket does not exist yet.", func(*host) {}},
		"Refused": {"The socket is a killed daemon's.", func(h *host) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.socket, Net: "unix"})
			if err != nil {
				h.t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			tc.before(h)
			done := make(chan outcome, 1)
			go func() { done <- h.run(env("ADD", nil), h.config("1.0.0"), time.Minute) }()
			time.Sleep(100 * time.Millisecond) // the first request fails
			_ = os.Remove(h.socket)
			h.start(answers)
			if got := <-done; got.status != 0 {
				t.Errorf("%s got %+v, want the result", tc.reason, got)
			}
		})
	}
}

// If the daemon is killed during an ADD, the plugin sends the request again.
func TestAddSurvivesAKill(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var asked atomic.Int32
	h.start(func(req wire.Request) *wire.Response {
		if asked.Add(1) < 3 {
			return nil
		}
		return answers(req)
	})
	if got := h.run(env("ADD", nil), h.config("1.0.0"), time.Minute); got.status != 0 || asked.Load() != 3 {
		t.Errorf("got %+v after %d requests, want the result after 3", got, asked.Load())
	}
}

func TestAddGivesUp(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	start := time.Now()
	e := fails(t, h.run(env("ADD", nil), h.config("1.0.0"), 120*time.Millisecond))
	if e.Code != wire.CodeTryAgain || !strings.Contains(e.Msg, "try again later") || !strings.Contains(e.Details, h.socket) {
		t.Errorf("daemon unavailable: got %+v, want code 11 and the socket", e)
	}
	if waited := time.Since(start); waited < 120*time.Millisecond {
		t.Errorf("daemon unavailable: gave up after %v", waited)
	}
}

// The plugin prints the daemon's error and code, and does not send the request again.
func TestDaemonRefuses(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"ADD", "DEL", "STATUS"} {
		h := newHost(t)
		h.start(func(wire.Request) *wire.Response {
			return &wire.Response{Error: &wire.Error{Code: 107, Msg: "no such network", Details: "x"}}
		})
		e := fails(t, h.run(env(command, nil), h.config("1.1.0"), time.Minute))
		if want := (cniError{"1.1.0", 107, "no such network", "x"}); e != want {
			t.Errorf("%s: got %+v, want %+v", command, e, want)
		}
		if got := len(h.requests()); got != 1 {
			t.Errorf("%s: the daemon got %d requests, want one", command, got)
		}
		if got := h.recorded(); len(got) != 0 {
			t.Errorf("%s: a rejected request was recorded: %v", command, got)
		}
	}
}

func TestAddWithoutResult(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(func(wire.Request) *wire.Response { return &wire.Response{} })
	if e := fails(t, h.run(env("ADD", nil), h.config("1.0.0"), 0)); e.Code != wire.CodeIO {
		t.Errorf("ADD without a result: got %+v, want code 5", e)
	}
}

// If the socket's path is invalid, the plugin does not wait.
func TestNotTheDaemon(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if err := os.WriteFile(h.socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.socket += "/x" // a file in the path: ENOTDIR
	for _, command := range []string{"ADD", "DEL"} {
		e := fails(t, h.run(env(command, nil), h.config("1.0.0"), time.Minute))
		if e.Code != wire.CodeIO || !strings.Contains(e.Msg, h.socket) {
			t.Errorf("%s: got %+v, want code 5 and the socket", command, e)
		}
	}
}

func TestDelIsRecorded(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		before func(*host)
	}{
		"Unavailable": {"No daemon runs.", func(*host) {}},
		"Killed":      {"A killed daemon may have handled a part of the DEL.", func(h *host) { h.start(func(wire.Request) *wire.Response { return nil }) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			tc.before(h)
			for range 2 {
				if got := h.run(env("DEL", nil), h.config("1.0.0"), time.Minute); got.status != 0 || got.stdout != "" {
					t.Fatalf("%s got %+v, want OK", tc.reason, got)
				}
			}
			got := h.recorded()
			if len(got) != 1 || got[0].ContainerID != "4f5a" || string(got[0].Config) != h.config("1.0.0") {
				t.Errorf("%s recorded %+v, want the one request", tc.reason, got)
			}
		})
	}
}

// DEL fails if it can be neither handled nor recorded.
func TestDelThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.blockPending()
	e := fails(t, h.run(env("DEL", nil), h.config("1.0.0"), 0))
	if e.Code != wire.CodeTryAgain || !strings.Contains(e.Details, h.pending) {
		t.Errorf("got %+v, want code 11 and the directory", e)
	}
}

func TestStatusWhileUnavailable(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := wire.HeartbeatPath(h.socket)
	e := fails(t, h.run(env("STATUS", nil), h.config("1.1.0"), 0))
	if e.Code != wire.CodeNotAvailable || !strings.Contains(e.Msg, "since the machine started") {
		t.Errorf("no heartbeat: got %+v, want code 50", e)
	}
	if err := heartbeat.Touch(path); err != nil {
		t.Fatal(err)
	}
	if got := h.run(env("STATUS", nil), h.config("1.1.0"), 0); got.status != 0 {
		t.Errorf("recent heartbeat: got %+v, want success", got)
	}
	// A heartbeat 1 ns after boot is older than a minute on any machine that runs tests.
	if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e = fails(t, h.run(env("STATUS", nil), h.config("1.1.0"), 0))
	if e.Code != wire.CodeNotAvailable || !strings.Contains(e.Msg, "heartbeat is") || !strings.Contains(e.Msg, " old") {
		t.Errorf("old heartbeat: got %+v, want code 50 and its age", e)
	}
}

// STATUS of a busy daemon with a recent heartbeat succeeds.
func TestStatusOfBusyDaemon(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(func(wire.Request) *wire.Response {
		return &wire.Response{Error: &wire.Error{Code: wire.CodeTryAgain, Msg: "busy"}}
	})
	if err := heartbeat.Touch(wire.HeartbeatPath(h.socket)); err != nil {
		t.Fatal(err)
	}
	if got := h.run(env("STATUS", nil), h.config("1.1.0"), 0); got.status != 0 {
		t.Errorf("got %+v, want OK", got)
	}
}

func TestNewProcess(t *testing.T) {
	t.Parallel()
	p := plugin.NewProcess()
	if p.PendingDir != wire.DefaultPendingDir || p.AddWait != 10*time.Second || p.StatusTimeout != 2*time.Second || p.Stdout != os.Stdout {
		t.Errorf("NewProcess: got %+v", p)
	}
}
