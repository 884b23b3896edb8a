// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// On SIGTERM, scripts/test-all ends a build that ignores SIGINT, as all do that began below nohup.
// Otherwise the build would go on without a parent, and keep its locks.
func TestTerminateEndsBuilds(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"test-all", "target"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		writeProgram(t, filepath.Join(root, "scripts", name), string(text))
	}
	writeProgram(t, filepath.Join(root, "path", "make"), `#!/bin/sh
case "$*" in
*preflight*) exit 0 ;;
esac
trap '' INT
echo $$ >&3
exec sleep 600
`)
	// Each process inherits the pipe, so its reader meets the end when none is left.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	script := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "test-all"))
	script.Env = append(os.Environ(), "PATH="+filepath.Join(root, "path")+":"+os.Getenv("PATH"))
	script.ExtraFiles = []*os.File{w}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	pipe := bufio.NewReader(r)
	line, err := pipe.ReadString('\n')
	if err != nil {
		t.Fatalf("wait for the build to start: %v", err)
	}
	build, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.ReadByte(); err == nil || os.IsTimeout(err) {
		t.Errorf("process %d of the build lives on: %v", build, err)
		_ = syscall.Kill(build, syscall.SIGKILL)
	}
	if err := script.Wait(); err == nil {
		t.Error("scripts/test-all returned success, want an error: its builds were not done")
	}
}

func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
