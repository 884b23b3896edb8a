// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// pluginError names the plugin. Its own error 11 is ours too.
func pluginError(p *libcni.PluginConfig, command string, err error) error {
	err = fmt.Errorf("CNI plugin %s: %s: %w", p.Network.Type, command, err)
	if own := (*types.Error)(nil); errors.As(err, &own) && own.Code == types.ErrTryAgainLater {
		return fmt.Errorf("%w: %w", attach.ErrTryAgain, err)
	}
	return err
}
