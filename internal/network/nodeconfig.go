// SPDX-License-Identifier: Apache-2.0

package network

import v1 "github.com/patchbay-cni/patchbay/api/danm/v1"

// KindNodeConfiguration is the kind of a network that is no object of the API server: a CNI configuration
// of the node beside Patchbay's.
const KindNodeConfiguration = "NodeConfiguration"

// NodeConfiguration returns the network of a Pod that requests none, while no network named "default" is
// for it. The node chooses the file, whose name replaces the network's. The network has no DanmEps and no
// addresses of Patchbay. Its Type is empty, because the plugins in the file may have the names of
// Patchbay's own types.
func NodeConfiguration() *Network {
	return &Network{Ref: Ref{Kind: KindNodeConfiguration, Name: v1.DefaultNetworkName}}
}
