// SPDX-License-Identifier: Apache-2.0

package claims

import "errors"

// Errors of a Store.
var (
	// ErrConflict says that the object has changed since it was read: the
	// write was not applied and never will be.
	ErrConflict = errors.New("object has changed")
	// ErrNotFound says that there is no object of that name.
	ErrNotFound = errors.New("not found")
)

// Errors of an Allocator. errors.Is holds through wrapping; the messages name
// the network, the address and what to do.
var (
	// ErrExhausted says that no dynamic address is free.
	ErrExhausted = errors.New("no free address")
	// ErrTaken says that a static address is in use.
	ErrTaken = errors.New("address is taken")
	// ErrOutside says that a static address is not in the network's subnet
	// or static_pool, or is its network or broadcast address, a gateway's or a node's.
	ErrOutside = errors.New("address cannot be used in this network")
	// ErrNoSubnet says that the network has no addresses of that family.
	ErrNoSubnet = errors.New("network has no subnet of this family")
	// ErrDeleting says that the network is being deleted: no new claims.
	ErrDeleting = errors.New("network is being deleted")
	// ErrSubnetInUse says that the subnet was changed while addresses of the
	// former one are held or in use.
	ErrSubnetInUse = errors.New("addresses of the network's former subnet are in use")
	// ErrTryAgain says that waiting helps (CNI error 11).
	ErrTryAgain = errors.New("try again later")
	// ErrUnknownState says that status.ipam is absent or cannot be read, and
	// could not be rebuilt.
	ErrUnknownState = errors.New("state of the network's addresses is unknown")
	// ErrClosed says that the Allocator was closed.
	ErrClosed = errors.New("allocator is closed")
)
