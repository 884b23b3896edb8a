// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/install"
)

// newInstaller returns an Installer with folders of its own and a plugin in its image.
func newInstaller(t *testing.T) *install.Installer {
	t.Helper()
	dir := t.TempDir()
	i := &install.Installer{
		PluginSource: filepath.Join(dir, "image"), BinDir: filepath.Join(dir, "bin"), ConfDir: filepath.Join(dir, "net.d"),
		Config:        []byte(`{"name":"patchbay"}`),
		DaemonSetGone: func(context.Context) (bool, error) { return false, nil },
	}
	write(t, i.PluginSource, "plugin v1")
	return i
}

// write writes a file and creates its folder.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// installAll installs plugin and configuration, as a daemon does at its start.
func installAll(t *testing.T, i *install.Installer) {
	t.Helper()
	if err := errors.Join(i.InstallPlugin(), i.InstallConfig()); err != nil {
		t.Fatal(err)
	}
}

// files returns the content and mode of each file in the host's folders.
func files(t *testing.T, i *install.Installer) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range []string{i.BinDir, i.ConfDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			found[e.Name()] = info.Mode().String() + " " + string(content)
		}
	}
	return found
}

// The plugin and its configuration are installed, whatever the folders have.
func TestInstall(t *testing.T) {
	t.Parallel()
	installed := map[string]string{
		"patchbay": "-rwxr-xr-x plugin v1", "00-patchbay.conflist": `-rw------- {"name":"patchbay"}`,
	}
	cases := map[string]struct {
		reason  string
		prepare func(*testing.T, *install.Installer)
	}{
		"Fresh": {"The folders do not exist yet.", func(*testing.T, *install.Installer) {}},
		"Older": {"An upgrade replaces both files.", func(t *testing.T, i *install.Installer) {
			t.Helper()
			write(t, filepath.Join(i.BinDir, "patchbay"), "plugin v0")
			write(t, filepath.Join(i.ConfDir, "00-patchbay.conflist"), `{"name":"patchbaz"}`)
		}},
		"Mode": {"The plugin is not executable.", func(t *testing.T, i *install.Installer) {
			t.Helper()
			write(t, filepath.Join(i.BinDir, "patchbay"), "plugin v1")
		}},
		"Killed": {"A daemon was killed while it wrote.", func(t *testing.T, i *install.Installer) {
			t.Helper()
			write(t, filepath.Join(i.BinDir, ".patchbay-partial-123"), "plug")
			write(t, filepath.Join(i.ConfDir, ".patchbay-partial-456"), "{")
		}},
		"Link": {"A symbolic link is replaced, not followed.", func(t *testing.T, i *install.Installer) {
			t.Helper()
			if err := os.MkdirAll(i.ConfDir, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(filepath.Dir(i.ConfDir), "elsewhere"), `{"name":"patchbay"}`)
			if err := os.Symlink("../elsewhere", filepath.Join(i.ConfDir, "00-patchbay.conflist")); err != nil {
				t.Fatal(err)
			}
		}},
		"Twice": {"A restart changes nothing.", installAll},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstaller(t)
			tc.prepare(t, i)
			installAll(t, i)
			if diff := cmp.Diff(installed, files(t, i)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A runtime reloads when a file changes, so that the same content is not written again.
func TestSameContentIsNotWritten(t *testing.T) {
	t.Parallel()
	i := newInstaller(t)
	installAll(t, i)
	stat := func(path string) fs.FileInfo {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	for _, path := range []string{filepath.Join(i.BinDir, "patchbay"), filepath.Join(i.ConfDir, "00-patchbay.conflist")} {
		before := stat(path)
		installAll(t, i)
		if after := stat(path); !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
			t.Errorf("%s was written again, want no write", path)
		}
	}
}

// An error names the path that fails.
func TestInstallErrorsNameThePath(t *testing.T) {
	t.Parallel()
	i := newInstaller(t)
	i.PluginSource += ".none"
	if err := i.InstallPlugin(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), i.PluginSource) {
		t.Errorf("no plugin in the image: got error %v, want one with the path", err)
	}
	folder := filepath.Join(i.ConfDir, "00-patchbay.conflist")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := i.InstallConfig(); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), folder) {
		t.Errorf("a folder in place of the configuration: got error %v, want one with the path", err)
	}
	file := newInstaller(t)
	write(t, file.BinDir, "not a folder")
	if err := file.InstallPlugin(); err == nil {
		t.Error("a file in place of the folder: got no error, want one")
	}
}

// CleanUp removes both files only if the DaemonSet is gone and no sandbox is attached.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	unknown := errors.New("no answer")
	cases := map[string]struct {
		reason   string
		gone     bool
		goneErr  error
		attached func() (bool, error)
		want     install.Outcome
		err      error
		unknown  bool
		left     []string
	}{
		"Rollout":   {reason: "The DaemonSet exists.", want: install.Kept, left: []string{"00-patchbay.conflist", "patchbay"}},
		"Uninstall": {reason: "The DaemonSet is gone.", gone: true, want: install.Removed},
		"Unknown": {
			reason: "It is unknown whether the DaemonSet is gone.", gone: true, goneErr: unknown,
			want: install.Kept, err: unknown, unknown: true, left: []string{"00-patchbay.conflist", "patchbay"},
		},
		"NoSandbox": {reason: "No sandbox is attached.", gone: true, attached: func() (bool, error) { return false, nil }, want: install.Removed},
		"Sandbox": {
			reason: "The runtime needs the plugin for a DEL.", gone: true, attached: func() (bool, error) { return true, nil },
			want: install.PluginKept, left: []string{"patchbay"},
		},
		"CorruptJournal": {
			reason: "A corrupt record may be that of an attached sandbox.", gone: true, attached: func() (bool, error) { return false, unknown },
			want: install.PluginKept, err: unknown, left: []string{"patchbay"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstaller(t)
			installAll(t, i)
			i.DaemonSetGone = func(ctx context.Context) (bool, error) {
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("DaemonSetGone: got a context without a deadline, want one with a deadline")
				}
				return tc.gone, tc.goneErr
			}
			i.SandboxesAttached = tc.attached
			got, err := i.CleanUp(t.Context())
			if got != tc.want || !errors.Is(err, tc.err) || errors.Is(err, install.ErrUninstallUnknown) != tc.unknown {
				t.Errorf("%s: got %s, %v, want %s, %v", tc.reason, got, err, tc.want, tc.err)
			}
			var left []string
			for _, f := range []string{"00-patchbay.conflist", "patchbay"} {
				if _, exists := files(t, i)[f]; exists {
					left = append(left, f)
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("%s: files: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A second CleanUp has the same outcome.
func TestCleanUpTwice(t *testing.T) {
	t.Parallel()
	i := newInstaller(t)
	installAll(t, i)
	i.DaemonSetGone = func(context.Context) (bool, error) { return true, nil }
	for range 2 {
		if got, err := i.CleanUp(t.Context()); got != install.Removed || err != nil {
			t.Errorf("CleanUp: got %s and error %v, want %s", got, err, install.Removed)
		}
	}
}

// CleanUp keeps the plugin when it cannot remove the configuration.
func TestCleanUpKeepsPluginWithConfiguration(t *testing.T) {
	t.Parallel()
	i := newInstaller(t)
	if err := i.InstallPlugin(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(i.ConfDir, "00-patchbay.conflist", "x"), "")
	i.DaemonSetGone = func(context.Context) (bool, error) { return true, nil }
	if got, err := i.CleanUp(t.Context()); got != install.Kept || err == nil {
		t.Errorf("CleanUp: got %s and error %v, want %s and an error", got, err, install.Kept)
	}
	if _, err := os.Stat(filepath.Join(i.BinDir, "patchbay")); err != nil {
		t.Errorf("plugin after CleanUp: %v", err)
	}
}
