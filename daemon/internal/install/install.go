// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-cni/patchbay/cni/config"
)

// Names on the host. Runtimes use the configuration that sorts first.
const (
	// PluginName is the name of the plugin's file.
	PluginName = config.PluginType
	// ConfigName is the name of the configuration's file.
	ConfigName = "00-patchbay.conflist"
)

// daemonSetTimeout bounds the check whether the DaemonSet is gone.
const daemonSetTimeout = 5 * time.Second

// Installer installs and uninstalls the plugin and its configuration.
type Installer struct {
	// PluginSource is the path of the plugin in the daemon's image.
	PluginSource string
	// BinDir is the runtime's folder of plugins.
	BinDir string
	// ConfDir is the runtime's folder of configurations.
	ConfDir string
	// Config is the configuration list that Conflist returns.
	Config []byte
	// DaemonSetGone reports whether the daemon's DaemonSet is deleted or being deleted. On error both
	// files stay.
	DaemonSetGone func(ctx context.Context) (bool, error)
	// SandboxesAttached reports whether sandboxes are attached. Nil means that none are. The runtime
	// needs the plugin for their DELs, which the plugin stores on disk for a later daemon.
	SandboxesAttached func() (bool, error)
}

// InstallPlugin installs the plugin.
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

// InstallConfig installs the configuration. The runtime then sends new sandboxes to the plugin.
func (i *Installer) InstallConfig() error {
	if err := writeFile(filepath.Join(i.ConfDir, ConfigName), i.Config, 0o600); err != nil {
		return fmt.Errorf("install configuration: %w", err)
	}
	return nil
}

// ErrUninstallUnknown means that it is unknown whether Patchbay is being uninstalled.
var ErrUninstallUnknown = errors.New("it is unknown whether Patchbay is being uninstalled")

// Outcome is the outcome of CleanUp.
type Outcome string

// Outcomes of CleanUp.
const (
	// Kept means that both files stay.
	Kept Outcome = "stayed"
	// PluginKept means that the configuration was removed and the plugin stays for DELs.
	PluginKept Outcome = "plugin stayed"
	// Removed means that both files were removed.
	Removed Outcome = "removed"
)

// CleanUp uninstalls the files if the DaemonSet is gone. The daemon calls it when it stops, while it
// still has the journal's lock. The error wraps ErrUninstallUnknown when DaemonSetGone fails.
func (i *Installer) CleanUp(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonSetTimeout)
	defer cancel()
	gone, err := i.DaemonSetGone(ctx)
	if err != nil {
		return Kept, fmt.Errorf("uninstall: check the DaemonSet: %w: %w", ErrUninstallUnknown, err)
	}
	if !gone {
		return Kept, nil
	}
	if err := removeFile(filepath.Join(i.ConfDir, ConfigName)); err != nil {
		return Kept, fmt.Errorf("uninstall: %w", err)
	}
	if attached, err := i.sandboxesAttached(); attached || err != nil {
		return PluginKept, err
	}
	if err := removeFile(filepath.Join(i.BinDir, PluginName)); err != nil {
		return PluginKept, fmt.Errorf("uninstall: %w", err)
	}
	return Removed, nil
}

// sandboxesAttached reports whether sandboxes are attached, and true if this is unknown.
func (i *Installer) sandboxesAttached() (bool, error) {
	if i.SandboxesAttached == nil {
		return false, nil
	}
	attached, err := i.SandboxesAttached()
	if err != nil {
		return true, fmt.Errorf("uninstall: check for attached sandboxes: %w", err)
	}
	return attached, nil
}
