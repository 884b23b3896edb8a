// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// On SIGTERM, scripts/test-all ends a build that ignores SIGINT, as all do that began below nohup,
// and so it ends targets of tests. Otherwise they would go on without a parent, and keep locks.
func TestTerminateEndsMake(t *testing.T) {
	t.Parallel()
	t.Run("builds", func(t *testing.T) {
		t.Parallel()
		terminate(t, "")
	})
	t.Run("targets", func(t *testing.T) {
		t.Parallel()
		terminate(t, "*-j2*) exit 0 ;;")
	})
}

// terminate ends scripts/test-all while make waits in the first target that is not a case.
func terminate(t *testing.T, cases string) {
	t.Helper()
	script := testAll(t, `#!/bin/sh
case "$*" in
*preflight*) exit 0 ;;
`+cases+`
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
	if others, err := io.ReadAll(pipe); err != nil {
		t.Errorf("process %d, or one of %q, lives on: %v", build, others, err)
		_ = syscall.Kill(build, syscall.SIGKILL)
	}
	if err := script.Wait(); err == nil {
		t.Error("scripts/test-all returned success, want an error: it was ended")
	}
}

// A lane that is done takes over what the others have not begun: while one lane is in test-placement,
// another does test-rules, which comes after it. No target runs twice, and those after a target that
// fails run too.
func TestFreeLaneTakesOver(t *testing.T) {
	t.Parallel()
	script := testAll(t, `#!/bin/sh
echo "$*" >>began
case "$*" in
*test-placement*)
	for i in $(seq 600); do
		grep -q test-rules began && exit 0
		sleep 0.1
	done
	exit 1
	;;
*test-kernel*) exit 1 ;;
esac
`)
	if out, err := script.CombinedOutput(); err == nil {
		t.Errorf("scripts/test-all returned success, want an error: test-kernel failed. It printed %s", out)
	}
	began, err := os.ReadFile(filepath.Join(script.Dir, "began"))
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?m)test-[a-z-]+$`).FindAllString(string(began), -1)
	slices.Sort(got)
	want := []string{"test-api", "test-cluster", "test-docs", "test-fallback", "test-gates", "test-install", "test-kernel", "test-placement", "test-rules", "test-sriov-guest", "test-sriov-lab", "test-unit"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets that make was called for (-want +got):\n%s", diff)
	}
}

// Another number of lanes is rejected before anything starts: it would run all targets one after the other.
func TestWrongLanes(t *testing.T) {
	t.Parallel()
	script := testAll(t, "#!/bin/sh\ntouch began\n")
	script.Env = append(script.Env, "LANES=two")
	out, err := script.CombinedOutput()
	if want := "LANES=two: must be 3, or 1 to run one target after the other\n"; err == nil || string(out) != want {
		t.Errorf("got %v and %q, want an error and %q", err, out, want)
	}
	if _, err := os.Stat(filepath.Join(script.Dir, "began")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("make was called (%v), want nothing to start", err)
	}
}

// testAll returns a call of scripts/test-all in a folder of its own, with program as make.
func testAll(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"test-all", "target"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		writeProgram(t, filepath.Join(root, "scripts", name), string(text))
	}
	writeProgram(t, filepath.Join(root, "path", "make"), program)
	writeProgram(t, filepath.Join(root, "path", "go"), "#!/bin/sh\n") // prints the table
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	script := exec.CommandContext(ctx, filepath.Join(root, "scripts", "test-all"))
	script.Dir = root
	script.Env = append(os.Environ(), "PATH="+filepath.Join(root, "path")+":"+os.Getenv("PATH"))
	return script
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
