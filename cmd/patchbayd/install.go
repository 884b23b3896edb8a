// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/install"
)

// installer is for this daemon's flags; nil with --install=false.
func (d *daemon) installer() (*install.Installer, error) {
	if !d.install {
		return nil, nil
	}
	config, err := install.Conflist(install.Settings{
		CNIVersion: d.cniVersion, NamingScheme: d.namingScheme, CNIDir: d.cniConf, Socket: d.socket,
	})
	if err != nil {
		return nil, err
	}
	return &install.Installer{
		Source: d.plugin, BinDir: d.cniBin, ConfDir: d.cniConf, Config: config,
		Gone: func(ctx context.Context) (bool, error) { return d.conn.BeingRemoved(ctx, d.namespace, d.daemonSet) },
		Busy: d.busy,
	}, nil
}

// putInPlace installs the plugin and then its configuration: from then on the
// runtime sends new sandboxes.
func (d *daemon) putInPlace() error {
	i, err := d.installer()
	if i == nil || err != nil {
		return err
	}
	if err := i.InstallPlugin(); err != nil {
		return err
	}
	return i.InstallConfig()
}

// leave uninstalls when the DaemonSet was deleted. That the API server does not say
// so is no reason to fail: it may be away for longer than this daemon.
func (d *daemon) leave(ctx context.Context) error {
	i, err := d.installer()
	if i == nil || err != nil {
		return err
	}
	outcome, err := i.Leave(context.WithoutCancel(ctx))
	d.log.Info("Leaving", "installation", outcome)
	if errors.Is(err, install.ErrUnknown) {
		d.log.Info("The installation stays as it is", "error", err.Error())
		return nil
	}
	if err == nil && outcome == install.Removed { // with Pods on them, networks stay guarded
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(d.firewall.Remove(), d.guard.Remove(ctx), d.kernel.RemoveTagFilters(ctx))
	}
	if err != nil {
		return fmt.Errorf("leave the node: %w", err)
	}
	return nil
}

// busy reports whether sandboxes are attached.
func (d *daemon) busy() (bool, error) {
	records, err := d.journal.List()
	for _, rec := range records {
		if rec.State != attach.Released {
			return true, err
		}
	}
	return false, err
}
