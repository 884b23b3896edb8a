// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// maxSize is the largest size of the plugin in bytes: it is executed for every Pod.
const maxSize = 6_000_000

// build builds the plugin as the Makefile does.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "patchbay")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path,
		"-ldflags", "-s -w -X github.com/patchbay-cni/patchbay/internal/version.version=v9", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// run executes the plugin as a runtime does, with these variables only.
func run(t *testing.T, path, stdin string, env ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Env = env
	cmd.Stdin = strings.NewReader(stdin)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	failed := cmd.Run()
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) {
		t.Fatal(failed)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

func TestExecutable(t *testing.T) {
	t.Parallel()
	path := build(t)
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxSize {
		t.Errorf("size: got %d bytes (%v), at most %d are allowed", info.Size(), err, maxSize)
	}

	t.Run("ByHand", func(t *testing.T) {
		t.Parallel()
		status, stdout, stderr := run(t, path, "")
		if status != 0 || stdout != "" || !strings.Contains(stderr, "patchbay v9") {
			t.Errorf("got %d, %q, %q, want the version on stderr", status, stdout, stderr)
		}
	})
	t.Run("Version", func(t *testing.T) {
		t.Parallel()
		status, stdout, _ := run(t, path, `{"cniVersion":"1.0.0"}`, "CNI_COMMAND=VERSION")
		const want = `{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n"
		if diff := cmp.Diff(want, stdout); diff != "" || status != 0 {
			t.Errorf("status %d, -want +got:\n%s", status, diff)
		}
	})
	t.Run("Error", func(t *testing.T) {
		t.Parallel()
		status, stdout, _ := run(t, path, "{}", "CNI_COMMAND=ADD", "CNI_CONTAINERID=../x")
		var e struct {
			Code int    `json:"code"`
			Msg  string `json:"msg"`
		}
		if err := json.Unmarshal([]byte(stdout), &e); err != nil || status != 1 || e.Code != 4 || !strings.Contains(e.Msg, `"../x"`) {
			t.Errorf("got %d and %s (%v), want status 1 and error 4", status, stdout, err)
		}
	})
}
