// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"path/filepath"
)

const (
	productNamespace = "patchbay-system"
	productDaemon    = "daemonset/patchbayd"
)

// Install applies deployments/ of the module that the lab was built from and waits
// until the daemon is ready on every node.
func (l *Lab) Install(ctx context.Context) error {
	if _, err := l.Kubectl(ctx, "apply", "--server-side", "-k", l.config.source("deployments")); err != nil {
		return err
	}
	_, err := l.Kubectl(ctx, "rollout", "status", "--namespace", productNamespace, productDaemon, "--timeout=240s")
	return err
}

// Examples returns a folder of examples/ of the module that the lab was built from.
func (l *Lab) Examples(name string) string { return l.config.source("examples", name) }

// source returns a path in the module whose bin/ the programs are in.
func (c Config) source(path ...string) string {
	return filepath.Join(append([]string{c.Bin, ".."}, path...)...)
}
