// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/network"
)

// Version tells two readings of an object's spec apart. Writes of status leave
// all of it alone. It is comparable.
type Version struct {
	// UID tells the object from a former one of the same name.
	UID types.UID
	// Generation of the spec.
	Generation int64
	// Deleting says that it has a deletion timestamp.
	Deleting bool
}

// VersionOf reads an object's metadata, which is enough.
func VersionOf(obj client.Object) Version {
	return Version{UID: obj.GetUID(), Generation: obj.GetGeneration(), Deleting: obj.GetDeletionTimestamp() != nil}
}

// Model is what a network object meant at one version: a validated network, or
// what is wrong with it.
type Model struct {
	// Version is what it was read at.
	Version Version
	// Network is nil when Err is not.
	Network *network.Network
	// Err names the field that is wrong; it wraps network.ErrInvalid.
	Err error
}

// ModelOf says what a network object means. Whoever attaches Pods asks the
// TenantConfigs besides whether a TenantNetwork was assigned what it says.
func ModelOf(obj client.Object) Model {
	net, err := network.From(obj)
	return Model{Version: VersionOf(obj), Network: net, Err: err}
}
