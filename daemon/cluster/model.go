// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/network"
)

// toModel says what a network object means.
func toModel(obj client.Object) model {
	net, err := network.From(obj)
	return model{version: versionOf(obj), net: net, err: err}
}
