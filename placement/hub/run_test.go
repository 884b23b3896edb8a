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

// A hub that is asked to end ends, also when nobody answers its first question.
func TestEndsUnanswered(t *testing.T) {
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
		ended <- Run(ctx, []string{"--kubeconfig=" + kubeconfig, "--http-address=127.0.0.1:0"}, &out, &out)
	}()
	asked, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// What fails by itself is told; what fails because the hub is asked to end is not.
func TestOrderly(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := runUntilStopped(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("by itself: got %v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := runUntilStopped(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return broken
	})
	if err != nil {
		t.Errorf("asked to end: got %v, want no error", err)
	}
}
