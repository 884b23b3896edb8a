// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"errors"
	"fmt"
	"strings"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// Checker checks whether this node has what a network of another plugin needs.
type Checker struct {
	// BinDir and ConfDir are the folders of plugins and of configurations, in the daemon's own root.
	BinDir, ConfDir string
}

// maxTypos is how many letters may differ between a NetworkType and one of Patchbay's that was
// meant.
const maxTypos = 2

// Check checks that the plugin and those of its configuration are installed.
func (c Checker) Check(plugin, networkID string) error {
	exec := &executor{root: "/"}
	if _, err := exec.FindInPath(plugin, []string{c.BinDir}); err != nil {
		return c.describeMissing(plugin, err)
	}
	list, _, err := loadConfig(c.ConfDir, networkID, plugin)
	if err != nil {
		return err
	}
	for _, p := range list.Plugins {
		if _, err := exec.FindInPath(p.Network.Type, []string{c.BinDir}); err != nil {
			return c.describeMissing(p.Network.Type, err)
		}
	}
	return nil
}

// describeMissing says what to do about a plugin that is not installed.
func (c Checker) describeMissing(plugin string, err error) error {
	if !errors.Is(err, errPluginNotInstalled) {
		return err
	}
	own := text.Nearest(strings.ToLower(plugin), []string{v1.TypeIPVLAN, v1.TypeMACVLAN, v1.TypeSRIOV}, maxTypos)
	if own != "" {
		return fmt.Errorf("%w: there is no %s/%s: did you mean NetworkType %s?", errPluginNotInstalled, c.BinDir, plugin, own)
	}
	return fmt.Errorf("%w: there is no %s/%s: install the plugin, or correct spec.NetworkType", errPluginNotInstalled, c.BinDir, plugin)
}
