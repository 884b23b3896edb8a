// SPDX-License-Identifier: Apache-2.0

package delegate

import (
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
