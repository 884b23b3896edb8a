// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"net/netip"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Errors of an Allocator, beside those of package status. errors.Is holds through wrapping;
// the messages name the network, the address and what to do.
var (
	// ErrExhausted means that no dynamic address is free.
	ErrExhausted = errors.New("no free address")
	// ErrTaken means that a static address is in use.
	ErrTaken = errors.New("address is taken")
	// ErrOutside means that a static address is not in the network's subnet or static_pool,
	// or is its network or broadcast address, a gateway's or a node's.
	ErrOutside = errors.New("address cannot be used in this network")
	// ErrNoSubnet means that the network has no addresses of that family.
	ErrNoSubnet = errors.New("network has no subnet of this family")
	// ErrDeleting means that the network is being deleted: it takes no new claims.
	ErrDeleting = errors.New("network is being deleted")
	// ErrSubnetInUse means that the subnet was changed while addresses of the former one
	// are in use or in an entry.
	ErrSubnetInUse = errors.New("addresses of the network's former subnet are in use")
	// ErrClosed means that the Allocator was closed.
	ErrClosed = errors.New("allocator is closed")
)

// Store reads and writes network objects. Package ipamtest has the conformance
// suite that every implementation passes.
//
// Each error that is neither status.ErrConflict nor status.ErrNotFound counts as "the
// answer was lost": the write may have been applied, or may still be.
type Store interface {
	// Get reads the object with quorum, never from a cache, or returns
	// status.ErrNotFound. An object that fails validation has Invalid instead of
	// Network: what was claimed of it must still be released.
	Get(ctx context.Context, ref network.Ref) (*status.Object, error)

	// Update writes IPAM, Allocated and Capacity through the status
	// subresource, and nothing else, and returns the object as written. It
	// returns status.ErrConflict when the stored object has another ResourceVersion
	// or UID, and that or status.ErrNotFound when it is gone. It does not retry.
	Update(ctx context.Context, obj *status.Object) (*status.Object, error)

	// Protect puts the finalizer danm.io/in-use on the main resource, or takes
	// it off, and returns the object as written. Errors are those of Update. Only the
	// controller may take it off.
	Protect(ctx context.Context, obj *status.Object, on bool) (*status.Object, error)

	// Endpoints lists the DanmEps that name the network, of all namespaces and
	// nodes. The list is consistent: it has every DanmEp that existed when the
	// call was made. Those in deletion count while their finalizer is there.
	Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error)
}

// AddressRequest is what an interface asks of one family.
type AddressRequest struct {
	// Dynamic asks for any free address of the pool.
	Dynamic bool
	// Static asks for this address; not with Dynamic. Neither: none.
	Static netip.Addr
}

// Phase is how far the use of an address has come, as the node's journal has it.
type Phase int

const (
	// Claimed is in use or about to be, and its DanmEp may not exist.
	Claimed Phase = iota
	// Published is in use and its DanmEp exists.
	Published
	// Releasing is no longer in use. The journal does not tell how far its release came:
	// it may be over, and the address may have another owner.
	Releasing
)

// Use is an attachment that this node answers for.
type Use struct {
	// Key is the network.
	Key network.Key
	// Owner is the attachment: the name of its DanmEp, which is unique.
	Owner string
	// V4 and V6 are its addresses; both invalid on a network without.
	V4, V6 netip.Addr
	// Static4 and Static6 say that the address was asked for by name: it is freed
	// at once, without a cooldown, and never pre-allocated.
	Static4, Static6 bool
	// Phase is how far it has come.
	Phase Phase
}

// Stats is the state of an Allocator.
type Stats struct {
	// Warm are pre-allocated addresses that are ready, Cooling those in cooldown.
	Warm, Cooling int
	// Quarantined are addresses that another machine on the network has.
	Quarantined int
	// Networks have addresses that are warm, cooling or quarantined.
	Networks int
	// FromWarmPool and Committed count the claims that succeeded, by where the
	// addresses came from; Exhausted those that found none.
	FromWarmPool, Committed, Exhausted int64
}
