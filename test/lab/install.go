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
	if _, err := l.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(l.config.Bin, "..", "deployments")); err != nil {
		return err
	}
	_, err := l.Kubectl(ctx, "rollout", "status", "--namespace", productNamespace, productDaemon, "--timeout=120s")
	return err
}
