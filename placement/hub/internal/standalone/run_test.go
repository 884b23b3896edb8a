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

// TestMain lets this test binary act as the programs, by its file name.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if name != "etcd" && name != "kube-apiserver" && name != "kube-controller-manager" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	_, err := os.Stat(name + muteSuffix)
	switch {
	case err == nil:
	case name == "etcd":
		go func() { fmt.Fprintln(os.Stderr, healthyEtcd(os.Args[1:])) }()
	case name == "kube-apiserver":
		go func() { fmt.Fprintln(os.Stderr, readyServer(os.Args[1:])) }()
	}
	<-ctx.Done()
}

// muteSuffix is the suffix of a file that keeps a program from answering.
const muteSuffix = ".mute"

// okServer answers each request with 200.
func okServer() *http.Server {
	return &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
}

// healthyEtcd creates its folder and answers like an etcd with a leader.
func healthyEtcd(args []string) error {
	if err := os.MkdirAll(valueOf(args, "--data-dir"), 0o700); err != nil {
		return err
	}
	l, err := net.Listen("unix", etcdSocket)
	if err != nil {
		return err
	}
	return okServer().Serve(l)
}

// readyServer answers like an API server that is ready.
func readyServer(args []string) error {
	s := okServer()
	s.Addr = net.JoinHostPort(valueOf(args, "--bind-address"), valueOf(args, "--secure-port"))
	return s.ListenAndServeTLS(valueOf(args, "--tls-cert-file"), valueOf(args, "--tls-private-key-file"))
}

func valueOf(args []string, flag string) string {
	for _, a := range args {
		if name, value, _ := strings.Cut(a, "="); name == flag {
			return value
		}
	}
	return ""
}

// fakeProgramsConfig returns a configuration whose programs run and only answer health checks.
func fakeProgramsConfig(t *testing.T) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := testConfig(t)
	for _, p := range programs(c) {
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

// Run returns no error when its context ends during the start.
func TestEndDuringStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		prepare func(*testing.T, Config)    // delays the start
		at      string                      // the file that shows the progress of the start
		serve   func(context.Context) error // runs after the start
	}{
		"Folder": {reason: "another hub is about to release the folder", at: "lock", prepare: func(t *testing.T, c Config) {
			t.Helper()
			f, err := c.lockDataDir(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		}},
		"Port": {reason: "another hub is about to release the port", at: "lock", prepare: func(t *testing.T, c Config) {
			t.Helper()
			l, err := net.Listen("tcp", strings.TrimPrefix(c.serverURL(), "https://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}},
		"Certificates": {reason: "no program runs yet", at: "ca.crt", prepare: silent("etcd")},
		"FirstEtcd":    {reason: "etcd has no leader yet", at: "etcd.log", prepare: silent("etcd")},
		"Etcd": {reason: "etcd has no leader yet at a later start", at: "etcd.log", prepare: func(t *testing.T, c Config) {
			t.Helper()
			silent("etcd")(t, c)
			if err := os.Mkdir(c.dataPath(etcdDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		"APIServer": {reason: "the API server does not answer yet", at: "kube-apiserver.log", prepare: silent("kube-apiserver")},
		"Manager":   {reason: "all programs have started", at: "kube-controller-manager.log", prepare: func(*testing.T, Config) {}},
		"Serve": {
			reason: "a request of the hub was interrupted", at: "kube-controller-manager.log", prepare: func(*testing.T, Config) {},
			serve: func(ctx context.Context) error { <-ctx.Done(); return errServe },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakeProgramsConfig(t)
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
			awaitFile(t, c.dataPath(tc.at), ended)
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("%s: got %v, want no error", tc.reason, err)
			}
		})
	}
}

// silent keeps a program from answering.
func silent(name string) func(*testing.T, Config) {
	return func(t *testing.T, c Config) {
		t.Helper()
		if err := os.WriteFile(c.dataPath(name+muteSuffix), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitFile waits until a file exists.
func awaitFile(t *testing.T, path string, ended <-chan error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("ended before %s existed: %v", path, err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", path)
		}
	}
}

// A start removes an unfinished folder of etcd, and keeps a finished one.
func TestEtcdFolder(t *testing.T) {
	t.Parallel()
	c := fakeProgramsConfig(t)
	if err := errors.Join(os.Mkdir(c.dataPath(etcdInitDir), 0o700), os.WriteFile(c.dataPath(etcdInitDir+"/left"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	start := func() {
		if err := Run(t.Context(), c, func(context.Context) error { return errServe }); !errors.Is(err, errServe) {
			t.Fatalf("got %v, want %v", err, errServe)
		}
	}
	start()
	for _, name := range []string{etcdInitDir, etcdDir + "/left"} {
		if _, err := os.Stat(c.dataPath(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after the first start: got %v, want that it is gone", name, err)
		}
	}
	kept := c.dataPath(etcdDir + "/kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start()
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("etcd's folder after the second start: %v", err)
	}
}

// Run returns the error of serve, and of a program that ends, after it has stopped the others.
func TestEndByItself(t *testing.T) {
	t.Parallel()
	c := fakeProgramsConfig(t)
	if err := Run(t.Context(), c, func(context.Context) error { return errServe }); !errors.Is(err, errServe) {
		t.Errorf("serve: got %v, want %v", err, errServe)
	}
	path := filepath.Join(c.BinDir, "etcd")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("#!/bin/sh\nexit 3\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), c, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err == nil || !strings.Contains(err.Error(), "etcd ended") || !strings.Contains(err.Error(), c.dataPath("etcd.log")) {
		t.Errorf("etcd: got %v, want an error with its name and log", err)
	}
}
