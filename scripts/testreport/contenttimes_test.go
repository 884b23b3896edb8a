// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Two clones of one commit have the same modification times after scripts/content-times, so that
// go test can reuse results; a file or folder whose content changes gets another time.
func TestContentTimes(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "content-times"))
	if err != nil {
		t.Fatal(err)
	}
	origin := t.TempDir()
	writeProgram(t, filepath.Join(origin, "scripts", "content-times"), string(script))
	for _, name := range []string{"same", "changed", "a/same", "b/changed"} {
		writeProgram(t, filepath.Join(origin, name), "first")
	}
	git(t, origin, "init", "-q")
	commit(t, origin)
	first, again := contentTimes(t, origin), contentTimes(t, origin)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error("a second clone has other times:\n", diff)
	}
	for _, name := range []string{"changed", "b/changed"} {
		writeProgram(t, filepath.Join(origin, name), "other")
	}
	commit(t, origin)
	other := contentTimes(t, origin)
	for name, changes := range map[string]bool{
		"same": false, "a": false, "a/same": false, "changed": true, "b": true, "b/changed": true,
	} {
		if changed := !other[name].Equal(first[name]); changed != changes {
			t.Errorf("time of %s: %v, then %v", name, first[name], other[name])
		}
	}
}

// A file that is built again with the same content gets the same time, whenever that is.
func TestContentTimesOfFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "program")
	timeOf := func(content string) time.Time {
		writeProgram(t, file, content)
		if out, err := exec.CommandContext(t.Context(), filepath.Join("..", "content-times"), file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	first, again, other := timeOf("first"), timeOf("first"), timeOf("other")
	if !again.Equal(first) || other.Equal(first) {
		t.Errorf("times are %v, with the same content %v, with other content %v", first, again, other)
	}
}

// contentTimes runs the script in a new clone and returns the times of its files and folders.
func contentTimes(t *testing.T, origin string) map[string]time.Time {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, ".", "clone", "-q", origin, clone)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(clone, "scripts", "content-times")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	times := map[string]time.Time{}
	for _, name := range []string{"same", "changed", "a", "a/same", "b", "b/changed"} {
		info, err := os.Stat(filepath.Join(clone, name))
		if err != nil {
			t.Fatal(err)
		}
		times[name] = info.ModTime()
	}
	return times
}

func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", "--all")
	git(t, dir, "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "test")
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}
