// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Run returns when its context ends, also while its first request has no answer.
func TestStopsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := strings.ReplaceAll(`{"clusters": [{"name": "a", "cluster": {"server": "http://ADDRESS"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}`, "ADDRESS", l.Addr().String())
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var out bytes.Buffer
		ended <- Run(ctx, []string{"--kubeconfig=" + kubeconfig, "--health-address=127.0.0.1:0"}, &out, &out)
	}()
	connection, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// runUntilStopped returns the error of serve, unless its context has ended.
func TestRunUntilStopped(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := runUntilStopped(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("before the end: got %v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := runUntilStopped(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return broken
	})
	if err != nil {
		t.Errorf("after the end: got %v, want no error", err)
	}
}
