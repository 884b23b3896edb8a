// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// HostLinks tells netwatcher what the cluster wants of this node's links.
type HostLinks struct {
	NetworkCache *NetworkCache
	Attachments  *AttachmentCache
	Nodes        *NodeNetworks
}

var _ netwatcher.KubeClient = (*HostLinks)(nil)

// Networks implements netwatcher.Cluster.
func (h *HostLinks) Networks(context.Context) ([]*network.Network, error) {
	if !h.NetworkCache.Ready() {
		return nil, fmt.Errorf("list networks: %w: they were not read yet", attach.ErrTryAgain)
	}
	attachments, err := h.Attachments.List()
	if err != nil && !errors.Is(err, netwatcher.ErrNetworksIncomplete) {
		return nil, err
	}
	return append(h.NetworkCache.List(), attachments...), err
}

// NodeNetworks implements netwatcher.Cluster.
func (h *HostLinks) NodeNetworks(ctx context.Context) ([]v1.NodeNetwork, error) {
	return h.Nodes.List(ctx)
}

// WriteStatus implements netwatcher.Cluster.
func (h *HostLinks) WriteStatus(ctx context.Context, status v1.NodeNetworkStatus) error {
	return h.Nodes.WriteStatus(ctx, status)
}
