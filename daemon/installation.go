// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// installation installs the plugin on the node, and uninstalls it when the daemon's DaemonSet was
// deleted. It does nothing with --install=false.
type installation struct {
	options *options
	log     logr.Logger
	conn    *kubeclient.Connection
	journal *journal.Journal
	// removePacketFilters removes all packet filters of the daemon from the kernel.
	removePacketFilters func(context.Context) error
	// links is the configuration of the reconciler of host links, which has stopped.
	links netwatcher.Config
	// report writes the report of a clean-up into this node's NodeNetwork.
	report func(context.Context, []v1.HostLink, metav1.Condition) error
	// removal is how the DaemonSet is removed, as it was read last.
	removal kubeclient.Removal
}

// install installs the plugin, and then its configuration. From then on, the container runtime
// sends new sandboxes to the plugin.
func (i *installation) install() error {
	installer, err := i.newInstaller()
	if installer == nil || err != nil {
		return err
	}
	if err := installer.InstallPlugin(); err != nil {
		return err
	}
	return installer.InstallConfig()
}

// uninstall uninstalls the plugin if the DaemonSet was deleted. It is no error when the API
// server does not answer: it may be unreachable for longer than the daemon may run. released is why
// addresses of the warm pool stay with the node, for the report.
func (i *installation) uninstall(ctx context.Context, released error) error {
	installer, err := i.newInstaller()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if installer == nil {
		reading, cancel := context.WithTimeout(ctx, removalTimeout)
		defer cancel()
		if _, err := i.readRemoval(reading); err != nil {
			i.log.Info("Failed to read whether to clean up the node", "error", err.Error())
		}
		return i.cleanUp(ctx, install.Kept, nil, released)
	}
	outcome, err := installer.CleanUp(ctx)
	i.log.Info("Checked the installation", "outcome", outcome)
	switch {
	case errors.Is(err, install.ErrUninstallUnknown):
		i.log.Info("Kept the installation", "error", err.Error())
		return nil
	case err == nil && outcome == install.Kept:
		return nil
	}
	if err := i.cleanUp(ctx, outcome, err, released); err != nil {
		return fmt.Errorf("uninstall the plugin: %w", err)
	}
	return nil
}

// newInstaller returns an Installer for the daemon's flags, and nil with --install=false.
func (i *installation) newInstaller() (*install.Installer, error) {
	o := i.options
	if !o.install {
		return nil, nil
	}
	config, err := install.Conflist(install.Settings{
		CNIVersion: o.cniVersion, NamingScheme: o.namingScheme, CNIDir: o.cniConf, Socket: o.socket,
	})
	if err != nil {
		return nil, err
	}
	return &install.Installer{
		PluginSource: o.plugin, BinDir: o.cniBin, ConfDir: o.cniConf, Config: config,
		DaemonSetGone:     i.readRemoval,
		SandboxesAttached: i.hasSandboxes,
	}, nil
}

// removalTimeout bounds the read of the DaemonSet with --install=false.
const removalTimeout = 5 * time.Second

// readRemoval reads how the DaemonSet is removed, and reports whether it is. It is read once: a second read may have
// another answer.
func (i *installation) readRemoval(ctx context.Context) (isDeleted bool, err error) {
	i.removal, err = i.conn.DaemonSetRemoval(ctx, i.options.namespace, i.options.daemonSet)
	return i.removal.Deleted, err
}

// hasSandboxes reports whether the journal has a record of an attached sandbox.
func (i *installation) hasSandboxes() (bool, error) {
	records, err := i.journal.List()
	for _, rec := range records {
		if rec.State != attach.Released {
			return true, err
		}
	}
	return false, err
}

// attachedPods returns the Pods of the attached sandboxes that have networks. The others have a CNI configuration of the
// node.
func (i *installation) attachedPods() ([]string, error) {
	records, err := i.journal.List()
	if err != nil {
		return nil, fmt.Errorf("list attached Pods: %w", err)
	}
	var pods []string
	for _, rec := range records {
		if rec.State != attach.Released && !rec.OnNodeConfiguration() {
			pods = append(pods, rec.PodNamespace+"/"+rec.PodName)
		}
	}
	slices.Sort(pods)
	return pods, nil
}
