// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// Checker checks whether this node has what a network of another plugin needs.
type Checker struct {
	// HostRoot is the directory with the host's files, as in Options. Links are resolved in it, as
	// the plugin's process resolves them.
	HostRoot string
	// BinDir is the folder of plugins, in HostRoot and in the daemon's own root, where another folder
	// of the host may be mounted at that path.
	BinDir string
	// ConfDir is the folder of configurations, in the daemon's own root.
	ConfDir string
	// Node finds the configuration of Pods that have no network.
	Node NodeConfigurations
}

// NodeConfiguration returns the file and the name of the configuration that Pods without a network get in any
// namespace, and checks that its plugins are installed. It returns file and name also when a plugin is missing.
func (c Checker) NodeConfiguration(ctx context.Context) (file, name string, err error) {
	chosen, err := c.Node.choose(ctx, "")
	if err != nil {
		return "", "", err
	}
	for i, p := range chosen.list.Plugins {
		err := c.checkInstalled(p.Network.Type)
		switch {
		case errors.Is(err, errPluginNotInstalled):
			return chosen.file, chosen.list.Name, fmt.Errorf("CNI configuration %s: plugins[%d].type: there is no %s/%s: install the plugin, or correct the file",
				chosen.file, i, c.BinDir, p.Network.Type)
		case err != nil:
			return chosen.file, chosen.list.Name, fmt.Errorf("CNI configuration %s: %w", chosen.file, err)
		}
	}
	return chosen.file, chosen.list.Name, nil
}

// CheckNamed checks the file that the daemon's flag names for Pods without a network, if it names one.
func (c Checker) CheckNamed() error {
	if c.Node.Named == "" {
		return nil
	}
	_, err := c.Node.named()
	return err
}

// CheckOwnFirst checks that the runtime uses Patchbay's configuration for new Pods.
func (c Checker) CheckOwnFirst() error { return c.Node.checkOwnFirst() }

// EarlierConfigurations returns the files that the runtime reads before Patchbay's, also before that one is
// installed.
func (c Checker) EarlierConfigurations() ([]EarlierConfiguration, error) { return c.Node.earlier() }

// Check checks that the plugin and those of its configuration are installed.
func (c Checker) Check(plugin, networkID string) error {
	if err := c.checkInstalled(plugin); err != nil {
		return err
	}
	list, _, err := loadConfig(c.ConfDir, networkID, plugin)
	if err != nil {
		return err
	}
	for _, p := range list.Plugins {
		if err := c.checkInstalled(p.Network.Type); err != nil {
			return err
		}
	}
	return nil
}

// checkInstalled checks that the host has a plugin.
func (c Checker) checkInstalled(plugin string) error {
	host := &executor{root: cmp.Or(c.HostRoot, "/")}
	if !c.isHostPath(host) {
		return c.checkMounted(host, plugin)
	}
	if _, err := host.FindInPath(plugin, []string{c.BinDir}); err != nil {
		return c.describeMissing(plugin, err)
	}
	return nil
}

// isHostPath reports whether the folder of plugins has the same path on the host.
func (c Checker) isHostPath(host *executor) bool {
	mounted, err := (&executor{root: "/"}).stat(c.BinDir)
	if err != nil {
		return false
	}
	onHost, err := host.stat(c.BinDir)
	return err == nil && onHost.Dev == mounted.Dev && onHost.Ino == mounted.Ino
}

// checkMounted checks that the host has a plugin in a folder of which only the daemon's own path is
// known: there, a relative link is resolved in the daemon's root, an absolute one on the host.
func (c Checker) checkMounted(host *executor, plugin string) error {
	own := &executor{root: "/"}
	target, err := os.Readlink(filepath.Join(c.BinDir, plugin))
	if err != nil || !filepath.IsAbs(target) {
		if _, err := own.FindInPath(plugin, []string{c.BinDir}); err != nil {
			return c.describeMissing(plugin, err)
		}
		return nil
	}
	ok, err := host.isExecutable(target)
	if err != nil {
		return fmt.Errorf("find plugin %s: %w", plugin, err)
	}
	if !ok {
		return c.describeMissing(plugin, errPluginNotInstalled)
	}
	return nil
}

// describeMissing returns the error about a plugin that is not installed, with what a netadmin does about
// it. It returns other errors as they are.
func (c Checker) describeMissing(plugin string, err error) error {
	if !errors.Is(err, errPluginNotInstalled) {
		return err
	}
	own := text.Nearest(strings.ToLower(plugin), []string{v1.TypeIPVLAN, v1.TypeMACVLAN, v1.TypeSRIOV})
	if own != "" {
		return fmt.Errorf("%w: there is no %s/%s: did you mean NetworkType %s?", errPluginNotInstalled, c.BinDir, plugin, own)
	}
	return fmt.Errorf("%w: there is no %s/%s: install the plugin, or correct spec.NetworkType", errPluginNotInstalled, c.BinDir, plugin)
}
