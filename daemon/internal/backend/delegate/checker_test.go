// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChecker(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, plugin string
		installed      []string
		config         string
		want           string
	}{
		"Ready":      {reason: "Plugin and configuration exist.", plugin: "flannel", installed: []string{"flannel"}, config: `{"type": "flannel"}`},
		"Typo":       {reason: "The type of a network is misspelt.", plugin: "ipvlam", want: "/ipvlam: did you mean NetworkType ipvlan?"},
		"TypoUpper":  {reason: "Our own types have any case.", plugin: "MACVLN", want: "did you mean NetworkType macvlan?"},
		"Missing":    {reason: "The plugin is not installed.", plugin: "flannel", config: `{"type": "flannel"}`, want: "/flannel: install the plugin, or correct spec.NetworkType"},
		"NoConfig":   {reason: "The configuration is missing.", plugin: "flannel", installed: []string{"flannel"}, want: "net.conf exists on this node"},
		"BadConfig":  {reason: "The configuration cannot be read.", plugin: "flannel", installed: []string{"flannel"}, config: `{`, want: "parse configuration"},
		"OtherType":  {reason: "The configuration is for another plugin.", plugin: "flannel", installed: []string{"flannel"}, config: `{"type": "bridge"}`, want: `is for plugin "bridge"`},
		"LaterOnes":  {reason: "A later plugin of the list is missing.", plugin: "flannel", installed: []string{"flannel"}, config: `{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}`, want: "/portmap: install"},
		"Traversing": {reason: "A plugin is a file name.", plugin: "../x", want: "must be a file name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Checker{BinDir: t.TempDir(), ConfDir: t.TempDir()}
			write := func(path, content string, mode os.FileMode) {
				if err := os.WriteFile(path, []byte(content), mode); err != nil {
					t.Fatal(err)
				}
			}
			for _, plugin := range tc.installed {
				write(filepath.Join(c.BinDir, plugin), "x", 0o700)
			}
			if strings.Contains(tc.config, "plugins") {
				write(filepath.Join(c.ConfDir, "net.conflist"), tc.config, 0o600)
			} else if tc.config != "" {
				write(filepath.Join(c.ConfDir, "net.conf"), tc.config, 0o600)
			}
			err := c.Check(tc.plugin, "net")
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s Check: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// Links to plugins are resolved in the host's root directory, not in the daemon's.
func TestCheckerLinks(t *testing.T) {
	t.Parallel()
	const loop, missing = "too many levels of symbolic links", "/bridge: install the plugin"
	cases := map[string]struct {
		reason  string
		links   map[string]string // by path below the folder of plugins
		mounted bool              // the folder has another path on the host
		want    string
	}{
		"Absolute":        {reason: "Distributions link to their packages' files.", links: map[string]string{"bridge": "/usr/lib/cni/bridge"}},
		"AbsoluteMissing": {reason: "The file exists in the daemon's root only.", links: map[string]string{"bridge": "/proc/self/exe"}, want: missing},
		"Relative":        {reason: "A relative link leaves the folder.", links: map[string]string{"bridge": "../../../usr/lib/cni/bridge"}},
		"AboveTheRoot":    {reason: "The host's root is its own parent.", links: map[string]string{"bridge": "../../../../../../../../usr/lib/cni/bridge"}},
		"Chain":           {reason: "A link to a link.", links: map[string]string{"bridge": "old", "old": "/usr/lib/cni/bridge"}},
		"Folder":          {reason: "A folder is no plugin.", links: map[string]string{"bridge": "/usr/lib/cni"}, want: missing},
		"Loop":            {reason: "The links never end.", links: map[string]string{"bridge": "/opt/cni/bin/old", "old": "bridge"}, want: loop},
		"Mounted":         {reason: "The DaemonSet mounts another folder of the host.", links: map[string]string{"bridge": "/usr/lib/cni/bridge"}, mounted: true},
		"MountedMissing":  {reason: "The file exists in the daemon's root only.", links: map[string]string{"bridge": "/proc/self/exe"}, mounted: true, want: missing},
		"MountedLoop":     {reason: "The links never end.", links: map[string]string{"bridge": "bridge"}, mounted: true, want: loop},
		"MountedDangling": {reason: "A relative link points to nothing.", links: map[string]string{"bridge": "gone"}, mounted: true, want: missing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, conf, bin := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "bin")
			onHost := filepath.Join(host, "opt/cni/bin")
			for _, folder := range []string{onHost, filepath.Join(host, "usr/lib/cni"), filepath.Join(host, filepath.Dir(bin))} {
				if err := os.MkdirAll(folder, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			symlink := func(target, link string) {
				if err := os.Symlink(target, link); err != nil {
					t.Fatal(err)
				}
			}
			symlink(onHost, bin) // in place of the mount
			if !tc.mounted {
				symlink("/opt/cni/bin", filepath.Join(host, bin))
			}
			for link, target := range tc.links {
				symlink(target, filepath.Join(onHost, link))
			}
			err := errors.Join(
				os.WriteFile(filepath.Join(host, "usr/lib/cni/bridge"), []byte("x"), 0o700),
				os.WriteFile(filepath.Join(conf, "net.conf"), []byte(`{"type": "bridge"}`), 0o600),
			)
			if err != nil {
				t.Fatal(err)
			}
			err = Checker{HostRoot: host, BinDir: bin, ConfDir: conf}.Check("bridge", "net")
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s Check: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
