// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// TestMain lets this binary be the programs, too: its name says which one.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if name != "etcd" && name != "kube-apiserver" && name != "kube-controller-manager" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if _, err := os.Stat(mute); name == "kube-apiserver" && err != nil {
		go func() { fmt.Fprintln(os.Stderr, ready(os.Args[1:])) }()
	}
	<-ctx.Done()
}

// mute is the file that keeps the API server from answering.
const mute = "mute"

// ready answers as an API server does that is ready.
func ready(args []string) error {
	given := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		given[name] = value
	}
	s := &http.Server{
		Addr: net.JoinHostPort(given["--bind-address"], given["--secure-port"]), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	return s.ListenAndServeTLS(given["--tls-cert-file"], given["--tls-private-key-file"])
}

// running is a configuration whose programs run and do next to nothing.
func running(t *testing.T) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := folder(t)
	for _, p := range append(c.programs(), c.manager()) {
		path := filepath.Join(c.BinDir, p.name)
		if err := errors.Join(os.Remove(path), os.Symlink(self, path)); err != nil {
			t.Fatal(err)
		}
	}
	free, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	c.Address, c.Port = free.Addr().AsSlice(), int(free.Port())
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

var errServe = errors.New("serve has failed")

// Whoever ends a hub during its start has not made a mistake.
func TestEndDuringStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		prepare func(*testing.T, Config)    // what holds the start up
		at      string                      // the file that says how far it is
		serve   func(context.Context) error // what runs when all has started
	}{
		"Folder": {reason: "another hub is about to leave the folder", at: "lock", prepare: func(t *testing.T, c Config) {
			t.Helper()
			f, err := c.lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		}},
		"Port": {reason: "another hub is about to leave the port", at: "lock", prepare: func(t *testing.T, c Config) {
			t.Helper()
			l, err := net.Listen("tcp", strings.TrimPrefix(c.url(), "https://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}},
		"Certificates": {reason: "nothing runs yet", at: "ca.crt", prepare: silent},
		"Etcd":         {reason: "the API server is not even there", at: "etcd.log", prepare: silent},
		"APIServer":    {reason: "it does not answer: nobody is there yet", at: "kube-apiserver.log", prepare: silent},
		"Manager":      {reason: "all has started", at: "kube-controller-manager.log", prepare: func(*testing.T, Config) {}},
		"Serve": {
			reason: "a question of the hub's was cut off", at: "kube-controller-manager.log", prepare: func(*testing.T, Config) {},
			serve: func(ctx context.Context) error { <-ctx.Done(); return errServe },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := running(t)
			tc.prepare(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- Run(ctx, c, func(ctx context.Context) error {
					if tc.serve != nil {
						return tc.serve(ctx)
					}
					<-ctx.Done()
					return nil
				})
			}()
			appears(t, c.path(tc.at), ended)
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("%s: got %v, want no error", tc.reason, err)
			}
		})
	}
}

func silent(t *testing.T, c Config) {
	t.Helper()
	if err := os.WriteFile(c.path(mute), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// appears waits for a file.
func appears(t *testing.T, path string, ended <-chan error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("ended before %s was there: %v", path, err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", path)
		}
	}
}

// What ends by itself is told, and takes the rest along.
func TestEndByItself(t *testing.T) {
	t.Parallel()
	c := running(t)
	if err := Run(t.Context(), c, func(context.Context) error { return errServe }); !errors.Is(err, errServe) {
		t.Errorf("serve: got %v, want %v", err, errServe)
	}
	path := filepath.Join(c.BinDir, "etcd")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("#!/bin/sh\nexit 3\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), c, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err == nil || !strings.Contains(err.Error(), "etcd ended") || !strings.Contains(err.Error(), c.path("etcd.log")) {
		t.Errorf("etcd: got %v, want it named, with its log", err)
	}
}
