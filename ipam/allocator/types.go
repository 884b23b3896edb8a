// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Errors of an Allocator, in addition to those of package status. Check them with errors.Is; the
// messages name the network, the address and what to do.
var (
	// ErrExhausted means that no dynamic address is free.
	ErrExhausted = errors.New("no free address")
	// ErrTaken means that a static address is in use.
	ErrTaken = errors.New("address is taken")
	// ErrOutside means that a static address is not in the network's subnet or static_pool,
	// or is the address of the network, of its broadcast, of a gateway or of a node.
	ErrOutside = errors.New("address cannot be used in this network")
	// ErrNoSubnet means that the network has no addresses of that family.
	ErrNoSubnet = errors.New("network has no subnet of this family")
	// ErrDeleting means that the network is being deleted: new claims are rejected.
	ErrDeleting = errors.New("network is being deleted")
	// ErrSubnetInUse means that the subnet was changed while addresses of the previous one
	// are in use or in an entry.
	ErrSubnetInUse = errors.New("addresses of the network's former subnet are in use")
	// ErrClosed means that the Allocator was closed.
	ErrClosed = errors.New("allocator is closed")
)

// TakenError is ErrTaken for one address.
type TakenError struct {
	// Addr is the static address.
	Addr netip.Addr
	// Owner has the address, for messages. It is empty for a Pod with a DanmEp, whose name the
	// allocator does not know.
	Owner string
}

// Error names the owner and what to do.
func (e *TakenError) Error() string {
	owner := e.Owner
	if owner == "" {
		owner = fmt.Sprintf("a Pod: find it with `kubectl get danmeps -A -o wide | grep -w %v`, and delete it, or request another address", e.Addr)
	}
	return fmt.Sprintf("claim static address %v: %v by %s", e.Addr, ErrTaken, owner)
}

// Is reports whether target is ErrTaken.
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// Store reads and writes network objects. Package ipamtest has the conformance suite that every
// implementation must pass.
//
// After an error that is neither status.ErrConflict nor status.ErrNotFound, the write may have
// been applied, or may still be applied later.
type Store interface {
	// Get reads the object with quorum, never from a cache, or returns
	// status.ErrNotFound. An object that fails validation has Invalid instead of
	// Network, because its addresses must still be released.
	Get(ctx context.Context, ref network.Ref) (*status.Object, error)

	// Update writes IPAM through the status subresource, and nothing else, and
	// returns the object as written. It returns status.ErrConflict when the stored
	// object has another ResourceVersion or UID, and that or status.ErrNotFound when
	// it is gone. It does not retry.
	Update(ctx context.Context, obj *status.Object) (*status.Object, error)

	// Protect adds the finalizer danm.io/in-use to the main resource, or removes it, and
	// returns the object as written. Errors are those of Update. Only the controller may
	// remove it.
	Protect(ctx context.Context, obj *status.Object, on bool) (*status.Object, error)

	// Endpoints lists the DanmEps that name the network, of all namespaces and
	// nodes. The list is consistent: it has every DanmEp that existed when the
	// call was made. Those in deletion count while their finalizer is there.
	Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error)
}

// AddressRequest requests at most one address of one family. The zero value requests none.
type AddressRequest struct {
	// Dynamic requests any free address of the pool.
	Dynamic bool
	// Static requests this address. It excludes Dynamic.
	Static netip.Addr
}

// Phase is the phase of an attachment's addresses, as recorded in the node's journal.
type Phase int

const (
	// Claimed addresses are in use or about to be, and their DanmEp may not exist.
	Claimed Phase = iota
	// Published addresses are in use and their DanmEp exists.
	Published
	// Releasing addresses are no longer in use. The journal does not record whether their
	// release is complete: they may already have another owner.
	Releasing
)

// Use is an attachment of this node, with its addresses.
type Use struct {
	// Key is the network.
	Key network.Key
	// Owner is the attachment: the name of its DanmEp, which is unique.
	Owner string
	// V4 and V6 are its addresses; both are invalid on a network without addresses.
	V4, V6 netip.Addr
	// Static4 and Static6 mean that the address was requested as a static one: it is freed
	// at once, without a cooldown, and never enters the warm pool.
	Static4, Static6 bool
	// Phase is the phase of its addresses.
	Phase Phase
}

// Stats is the state of an Allocator.
type Stats struct {
	// Warm is the number of addresses in warm pools, Cooling of those in cooldown.
	Warm, Cooling int
	// Quarantined is the number of addresses that another machine on the network has.
	Quarantined int
	// Networks is the number of networks with addresses that are warm, cooling or quarantined.
	Networks int
	// FromWarmPool and Committed count the claims that succeeded, by the source of their
	// addresses. Exhausted counts those that found no free address.
	FromWarmPool, Committed, Exhausted int64
}
