// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/netip"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Records is the journal as the publisher needs it.
type Records interface {
	// Get returns the record, or an error that wraps attach.ErrNotFound.
	Get(containerID, ifName string) (*attach.Record, error)
	// Update changes the record in one transaction with reading it, since DEL
	// writes it too. The error wraps attach.ErrNotFound when it is gone.
	Update(containerID, ifName string, change func(*attach.Record) error) error
	// Delete removes the record; a missing one is no error.
	Delete(containerID, ifName string) error
}

// Coverage moves an address between the node's entry and a DanmEp, so that one
// of both covers it at any time (design "Who covers a bit"). Addresses may be
// invalid (zero) for a family that the interface does not have.
type Coverage interface {
	// Published says that a DanmEp, the owner, covers the addresses: they may
	// leave the entry. It is called once for each claim, in each life of the daemon.
	Published(net claims.Key, owner string, v4, v6 netip.Addr)
	// Return puts the addresses back into the entry before their DanmEp goes.
	// owner is the DanmEp's name: a release that is repeated after another
	// Pod got the address is a no-op.
	Return(ctx context.Context, net claims.Key, owner string, v4, v6 netip.Addr) error
	// Free clears the bits of addresses that the entry covers, and does nothing
	// about others: a second release frees nothing. It is called for interfaces
	// without addresses, too: they have kept the entry.
	Free(ctx context.Context, net claims.Key, owner string, v4, v6 netip.Addr) error
	// Forget says that the record is gone: no release will be repeated.
	Forget(net claims.Key, owner string, v4, v6 netip.Addr)
}

// Recovery is told what the API server has lost.
type Recovery interface {
	// Missing says that a DanmEp that covered the addresses is gone though this node
	// did not remove it: they are to be covered by the entry again.
	Missing(net claims.Key, owner string, v4, v6 netip.Addr)
}
