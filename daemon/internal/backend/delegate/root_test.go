// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
)

// Plugins run with the host's root directory: its libraries, its configuration and its links,
// also absolute ones.
func TestHostRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may change its root directory (chroot(2))")
	}
	b := newBench(t, delegate.Options{})
	host := t.TempDir()
	b.backend = delegate.New(delegate.Options{HostRoot: host})
	installShell(t, host)
	b.write(filepath.Join(host, "usr/lib/cni/bridge"),
		"#!/bin/sh\nread where < /where; echo '{\"cniVersion\":\"1.0.0\",\"interfaces\":[{\"name\":\"'$where'\"}]}'\n", 0o755)
	b.write(filepath.Join(host, "where"), "on-the-host", 0o644)
	if err := os.Symlink("/usr/lib/cni/bridge", filepath.Join(host, "opt/cni/bin/bridge")); err != nil {
		t.Fatal(err)
	}
	b.config("flat.conf", single)
	rec, ifc := b.sandbox("bridge")
	rec.Path = "/opt/cni/bin"
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	if err := b.backend.Attach(context.Background(), rec, ifc); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(ifc.Result), `"on-the-host"`) {
		t.Errorf("the plugin did not run with the host's root: %s", ifc.Result)
	}
}

// installShell copies a dynamically linked shell and its libraries into a root directory.
func installShell(t *testing.T, root string) {
	t.Helper()
	libraries, err := exec.Command("ldd", "/bin/sh").Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	for _, path := range append(strings.Fields(string(libraries)), "/bin/sh", "/usr/lib/cni", "/opt/cni/bin") {
		if !filepath.IsAbs(path) {
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, path), data, 0o755)
		} else {
			err = os.MkdirAll(filepath.Join(root, path), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
