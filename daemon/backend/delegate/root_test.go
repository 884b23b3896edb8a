// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/backend/delegate"
)

// Plugins see the host's files as theirs: its libraries, configuration and
// links, absolute ones too.
func TestHostRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may change its root folder (chroot(2))")
	}
	b := newBench(t, delegate.Options{})
	host := t.TempDir()
	b.backend = delegate.New(delegate.Options{HostRoot: host})
	for _, dir := range []string{"opt/cni/bin", "usr/lib/cni"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(host, "usr/lib/cni/bridge"), "./testdata/plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build plugin: %v\n%s", err, out)
	}
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
		t.Errorf("the plugin ran elsewhere: %s", ifc.Result)
	}
}
