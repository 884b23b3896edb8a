// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Store reads and writes network objects. Package ipamtest has the conformance
// suite that every implementation passes.
//
// Each error that is neither ErrConflict nor ErrNotFound counts as "the answer
// was lost": the write may have been applied, or may still be.
type Store interface {
	// Get reads the object with quorum, never from a cache, or returns
	// ErrNotFound. An object that fails validation has Invalid instead of
	// Network: what was claimed of it must still be released.
	Get(ctx context.Context, ref network.Ref) (*Object, error)

	// Update writes IPAM, Allocated and Capacity through the status
	// subresource, and nothing else, and returns the object as written. It
	// returns ErrConflict when the stored object has another ResourceVersion
	// or UID, and that or ErrNotFound when it is gone. It does not retry.
	Update(ctx context.Context, obj *Object) (*Object, error)

	// Protect puts the finalizer danm.io/in-use on the main resource, or takes
	// it off, and returns the object as written. Errors are those of Update. Only the
	// controller may take it off.
	Protect(ctx context.Context, obj *Object, on bool) (*Object, error)

	// Endpoints lists the DanmEps that name the network, of all namespaces and
	// nodes. The list is consistent: it has every DanmEp that existed when the
	// call was made. Those in deletion count while their finalizer is there.
	Endpoints(ctx context.Context, ref network.Ref) ([]Endpoint, error)
}

// Object is a network object as the API server has it. A Store shares no memory
// of an Object that it returned.
type Object struct {
	// Ref names the object.
	Ref network.Ref
	// UID tells it from a former object of the same name.
	UID string
	// Generation of the spec.
	Generation int64
	// ResourceVersion is that of the read or write that gave this object.
	ResourceVersion string
	// Deleting says that it has a deletion timestamp.
	Deleting bool
	// Protected says that it has the finalizer danm.io/in-use.
	Protected bool
	// Network is the validated spec, nil when Invalid.
	Network *network.Network
	// Invalid is what is wrong with the spec, naming field and rule.
	Invalid error

	// IPAM is status.ipam; nil means unknown, not empty.
	IPAM *v1.IPAMStatus
	// Allocated and Capacity are status.allocated and status.capacity.
	Allocated, Capacity int64

	// Extra is what the Store wrote there for itself: the rest of the object
	// that Update and Protect must leave as it is. Copies of an Object keep it.
	Extra any
}

// subnets are those that addresses are given from: none of an invalid spec, nor
// of a network whose addresses are another plugin's work.
func (o *Object) subnets() (v4, v6 *network.Subnet) {
	if o.Invalid != nil || o.Network.Delegates() {
		return nil, nil
	}
	return o.Network.V4, o.Network.V6
}

// others reports whether the addresses in its DanmEps are another plugin's. When
// a bitmap is there, some may still be ours: the network was of another type.
func (o *Object) others() bool {
	if o.Invalid != nil || !o.Network.Delegates() {
		return false
	}
	return o.IPAM == nil || o.IPAM.V4 == nil && o.IPAM.V6 == nil
}

// Endpoint is what a DanmEp says of an address.
type Endpoint struct {
	// Namespace, Name and UID of the DanmEp.
	Namespace, Name, UID string
	// Pod and PodUID name the Pod that it is of.
	Pod, PodUID string
	// NetworkUID is the network's UID; empty in DanmEps that DANM wrote, which
	// count for any network of the name.
	NetworkUID string
	// Node is spec.Host.
	Node string
	// ID is spec.EndpointID: DanmEps of one interface have the same.
	ID string
	// V4 and V6 are the addresses, without prefix length; invalid when none.
	V4, V6 netip.Addr
}
