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

// ModelOf says what a network object means. What a TenantNetwork says of its own
// assignment is not believed: no program of this installation assigns yet, so that a
// tenant has written it.
func ModelOf(obj client.Object) Model {
	net, err := network.From(obj)
	if net != nil {
		net.Assignment = ""
	}
	return Model{Version: VersionOf(obj), Network: net, Err: err}
}
