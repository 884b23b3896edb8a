// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"net/netip"

	"github.com/patchbay-cni/patchbay/internal/network"
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

// static reports whether an address of the use was asked for by name.
func (u Use) static(a netip.Addr) bool { return a.Is4() && u.Static4 || a.Is6() && u.Static6 }
