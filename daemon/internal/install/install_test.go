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

// installer has folders of its own and a plugin in its image.
func installer(t *testing.T) *install.Installer {
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

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// both installs in the order of a daemon's start.
func both(t *testing.T, i *install.Installer) {
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

func TestInstall(t *testing.T) {
	t.Parallel()
	installed := map[string]string{
		"patchbay": "-rwxr-xr-x plugin v1", "00-patchbay.conflist": `-rw------- {"name":"patchbay"}`,
	}
	cases := map[string]struct {
		reason string
		before func(*testing.T, *install.Installer)
	}{
		"Fresh": {"the folders do not exist yet", func(*testing.T, *install.Installer) {}},
		"Older": {"an upgrade replaces both", func(t *testing.T, i *install.Installer) {
			t.Helper()
			write(t, filepath.Join(i.BinDir, "patchbay"), "plugin v0")
			write(t, filepath.Join(i.ConfDir, "00-patchbay.conflist"), `{"name":"patchbaz"}`)
		}},
		"Mode": {"somebody took the right to execute it", func(t *testing.T, i *install.Installer) {
			t.Helper()
			write(t, filepath.Join(i.BinDir, "patchbay"), "plugin v1")
		}},
		"Killed": {"a daemon was killed while it wrote", func(t *testing.T, i *install.Installer) {
			t.Helper()
			write(t, filepath.Join(i.BinDir, ".patchbay-partial-123"), "plug")
			write(t, filepath.Join(i.ConfDir, ".patchbay-partial-456"), "{")
		}},
		"Link": {"a link is replaced, not followed", func(t *testing.T, i *install.Installer) {
			t.Helper()
			if err := os.MkdirAll(i.ConfDir, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(filepath.Dir(i.ConfDir), "elsewhere"), `{"name":"patchbay"}`)
			if err := os.Symlink("../elsewhere", filepath.Join(i.ConfDir, "00-patchbay.conflist")); err != nil {
				t.Fatal(err)
			}
		}},
		"Twice": {"a restart changes nothing", both},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := installer(t)
			tc.before(t, i)
			both(t, i)
			if diff := cmp.Diff(installed, files(t, i)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A runtime reloads when a file changes, so the same content is not written.
func TestSameContentIsLeftAlone(t *testing.T) {
	t.Parallel()
	i := installer(t)
	both(t, i)
	stat := func(path string) fs.FileInfo {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	for _, path := range []string{filepath.Join(i.BinDir, "patchbay"), filepath.Join(i.ConfDir, "00-patchbay.conflist")} {
		before := stat(path)
		both(t, i)
		if after := stat(path); !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
			t.Errorf("%s was written again", path)
		}
	}
}

func TestInstallSaysWhatFails(t *testing.T) {
	t.Parallel()
	i := installer(t)
	i.PluginSource += ".none"
	if err := i.InstallPlugin(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), i.PluginSource) {
		t.Errorf("no plugin in the image: got %v", err)
	}
	folder := filepath.Join(i.ConfDir, "00-patchbay.conflist")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := i.InstallConfig(); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), folder) {
		t.Errorf("a folder where the configuration goes: got %v", err)
	}
	file := installer(t)
	write(t, file.BinDir, "not a folder")
	if err := file.InstallPlugin(); err == nil {
		t.Error("a file where the folder goes: got no error")
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	away := errors.New("no answer")
	cases := map[string]struct {
		reason  string
		gone    bool
		goneErr error
		busy    func() (bool, error)
		want    install.Outcome
		err     error
		unknown bool
		left    []string
	}{
		"Rollout":   {reason: "the daemon comes back", want: install.Kept, left: []string{"00-patchbay.conflist", "patchbay"}},
		"Uninstall": {reason: "both go", gone: true, want: install.Removed},
		"Unknown": {
			reason: "when in doubt Pods keep their network", gone: true, goneErr: away,
			want: install.Kept, err: away, unknown: true, left: []string{"00-patchbay.conflist", "patchbay"},
		},
		"Idle": {reason: "no sandbox is left", gone: true, busy: func() (bool, error) { return false, nil }, want: install.Removed},
		"Busy": {
			reason: "a sandbox needs its DEL", gone: true, busy: func() (bool, error) { return true, nil },
			want: install.PluginKept, left: []string{"patchbay"},
		},
		"Doubt": {
			reason: "a damaged journal may hide a sandbox", gone: true, busy: func() (bool, error) { return false, away },
			want: install.PluginKept, err: away, left: []string{"patchbay"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := installer(t)
			both(t, i)
			i.DaemonSetGone = func(ctx context.Context) (bool, error) {
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("the question is not bounded")
				}
				return tc.gone, tc.goneErr
			}
			i.SandboxesAttached = tc.busy
			got, err := i.CleanUp(t.Context())
			if got != tc.want || !errors.Is(err, tc.err) || errors.Is(err, install.ErrUninstallUnknown) != tc.unknown {
				t.Errorf("%s: got %s, %v, want %s, %v", tc.reason, got, err, tc.want, tc.err)
			}
			var left []string
			for _, f := range []string{"00-patchbay.conflist", "patchbay"} {
				if _, there := files(t, i)[f]; there {
					left = append(left, f)
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("%s: files: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLeaveTwice(t *testing.T) {
	t.Parallel()
	i := installer(t)
	both(t, i)
	i.DaemonSetGone = func(context.Context) (bool, error) { return true, nil }
	for range 2 {
		if got, err := i.CleanUp(t.Context()); got != install.Removed || err != nil {
			t.Errorf("Leave: got %s, %v", got, err)
		}
	}
}

// The plugin must not go while the configuration that names it is there.
func TestLeaveStopsWhenTheConfigurationStays(t *testing.T) {
	t.Parallel()
	i := installer(t)
	if err := i.InstallPlugin(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(i.ConfDir, "00-patchbay.conflist", "x"), "")
	i.DaemonSetGone = func(context.Context) (bool, error) { return true, nil }
	if got, err := i.CleanUp(t.Context()); got != install.Kept || err == nil {
		t.Errorf("Leave: got %s, %v, want an error", got, err)
	}
	if _, err := os.Stat(filepath.Join(i.BinDir, "patchbay")); err != nil {
		t.Errorf("the plugin: %v", err)
	}
}
