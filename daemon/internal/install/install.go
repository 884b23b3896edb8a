// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-cni/patchbay/cni/conf"
)

// Names on the host. Runtimes take the configuration that sorts first.
const (
	// PluginName is the plugin's file in the runtime's plugin folder.
	PluginName = conf.PluginType
	// ConfigName is the configuration's file in the runtime's folder.
	ConfigName = "00-patchbay.conflist"
)

// daemonSetTimeout bounds the question whether the DaemonSet is gone.
const daemonSetTimeout = 5 * time.Second

// Installer knows where the files come from and where they go.
type Installer struct {
	// PluginSource is the plugin in the daemon's image.
	PluginSource string
	// BinDir is the runtime's folder for plugins.
	BinDir string
	// ConfDir is the runtime's folder for configurations.
	ConfDir string
	// Config is the configuration list, see Conflist.
	Config []byte
	// DaemonSetGone reports whether the daemon's own DaemonSet is deleted or being
	// deleted. When it cannot be told, both files stay.
	DaemonSetGone func(ctx context.Context) (bool, error)
	// SandboxesAttached reports whether sandboxes are still attached; nil means no. Their
	// runtime needs the plugin for DEL: without it Pods could not go, with it
	// DELs are recorded on disk for a later daemon.
	SandboxesAttached func() (bool, error)
}

// InstallPlugin places the plugin.
func (i *Installer) InstallPlugin() error {
	binary, err := os.ReadFile(i.PluginSource)
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	if err := writeFile(filepath.Join(i.BinDir, PluginName), binary, 0o755); err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	return nil
}

// InstallConfig places the configuration: from then on new sandboxes come.
func (i *Installer) InstallConfig() error {
	if err := writeFile(filepath.Join(i.ConfDir, ConfigName), i.Config, 0o600); err != nil {
		return fmt.Errorf("install configuration: %w", err)
	}
	return nil
}

// ErrUninstallUnknown says that it cannot be told whether Patchbay is being uninstalled.
var ErrUninstallUnknown = errors.New("it is not known whether Patchbay is to stay")

// Outcome is what Leave did.
type Outcome string

// What Leave can have done.
const (
	// Kept: the daemon comes back, nothing was removed.
	Kept Outcome = "stayed"
	// PluginKept: the configuration was removed, the plugin still serves DELs.
	PluginKept Outcome = "plugin stayed"
	// Removed: both files are gone.
	Removed Outcome = "removed"
)

// CleanUp is called when the daemon stops, with the journal still open. It removes
// what was installed if Patchbay is being uninstalled; the error answers to ErrUnknown
// when nobody says whether it is.
func (i *Installer) CleanUp(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonSetTimeout)
	defer cancel()
	gone, err := i.DaemonSetGone(ctx)
	if err != nil {
		return Kept, fmt.Errorf("uninstall: ask for the DaemonSet: %w: %w", ErrUninstallUnknown, err)
	}
	if !gone {
		return Kept, nil
	}
	if err := removeFile(filepath.Join(i.ConfDir, ConfigName)); err != nil {
		return Kept, fmt.Errorf("uninstall: %w", err)
	}
	if busy, err := i.sandboxesAttached(); busy || err != nil {
		return PluginKept, err
	}
	if err := removeFile(filepath.Join(i.BinDir, PluginName)); err != nil {
		return PluginKept, fmt.Errorf("uninstall: %w", err)
	}
	return Removed, nil
}

func (i *Installer) sandboxesAttached() (bool, error) {
	if i.SandboxesAttached == nil {
		return false, nil
	}
	busy, err := i.SandboxesAttached()
	if err != nil {
		return true, fmt.Errorf("uninstall: look for sandboxes: %w", err)
	}
	return busy, nil
}
