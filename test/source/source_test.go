// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestPath(t *testing.T) {
	t.Parallel()
	path, err := Path("test", "source", "source.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("Path: %v", err)
	}
}

func TestRootOfPassesOtherModules(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	inner := filepath.Join(root, "test", "kubernetes")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	const name = "module github.com/patchbay-cni/patchbay"
	write(t, filepath.Join(root, "go.mod"), name+"\n\ngo 1.26\n")
	write(t, filepath.Join(inner, "go.mod"), name+"/test/kubernetes\n")
	if got, err := rootOf(inner); err != nil || got != root {
		t.Errorf("rootOf: got %q, %v; want %q", got, err, root)
	}
}

func TestRootOfOutside(t *testing.T) {
	t.Parallel()
	if got, err := rootOf(t.TempDir()); !errors.Is(err, ErrOutside) {
		t.Errorf("rootOf: got %q, %v; want ErrOutside", got, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
