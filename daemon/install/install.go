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

// ask bounds the question whether the DaemonSet is gone.
const ask = 5 * time.Second

// Installer knows where the files come from and where they go.
type Installer struct {
	// Source is the plugin in the daemon's image.
	Source string
	// BinDir is the runtime's folder for plugins.
	BinDir string
	// ConfDir is the runtime's folder for configurations.
	ConfDir string
	// Config is the configuration list, see Conflist.
	Config []byte
	// Gone reports whether the daemon's own DaemonSet is deleted or being
	// deleted. When it cannot be told, both files stay.
	Gone func(ctx context.Context) (bool, error)
	// Busy reports whether sandboxes are still attached; nil means no. Their
	// runtime needs the plugin for DEL: without it Pods could not go, with it
	// DELs are recorded on disk for a later daemon.
	Busy func() (bool, error)
}

// InstallPlugin places the plugin.
func (i *Installer) InstallPlugin() error {
	binary, err := os.ReadFile(i.Source)
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	if err := place(filepath.Join(i.BinDir, PluginName), binary, 0o755); err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	return nil
}

// InstallConfig places the configuration: from then on new sandboxes come.
func (i *Installer) InstallConfig() error {
	if err := place(filepath.Join(i.ConfDir, ConfigName), i.Config, 0o600); err != nil {
		return fmt.Errorf("install configuration: %w", err)
	}
	return nil
}

// ErrUnknown says that it cannot be told whether Patchbay is being uninstalled.
var ErrUnknown = errors.New("it is not known whether Patchbay is to stay")

// Outcome is what Leave did.
type Outcome string

// What Leave can have done.
const (
	// Stayed: the daemon comes back, nothing was removed.
	Stayed Outcome = "stayed"
	// PluginStayed: the configuration was removed, the plugin still serves DELs.
	PluginStayed Outcome = "plugin stayed"
	// Removed: both files are gone.
	Removed Outcome = "removed"
)

// Leave is called when the daemon stops, with the journal still open. It removes
// what was installed if Patchbay is being uninstalled; the error answers to ErrUnknown
// when nobody says whether it is.
func (i *Installer) Leave(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	gone, err := i.Gone(ctx)
	if err != nil {
		return Stayed, fmt.Errorf("uninstall: ask for the DaemonSet: %w: %w", ErrUnknown, err)
	}
	if !gone {
		return Stayed, nil
	}
	if err := remove(filepath.Join(i.ConfDir, ConfigName)); err != nil {
		return Stayed, fmt.Errorf("uninstall: %w", err)
	}
	if busy, err := i.busy(); busy || err != nil {
		return PluginStayed, err
	}
	if err := remove(filepath.Join(i.BinDir, PluginName)); err != nil {
		return PluginStayed, fmt.Errorf("uninstall: %w", err)
	}
	return Removed, nil
}

func (i *Installer) busy() (bool, error) {
	if i.Busy == nil {
		return false, nil
	}
	busy, err := i.Busy()
	if err != nil {
		return true, fmt.Errorf("uninstall: look for sandboxes: %w", err)
	}
	return busy, nil
}
