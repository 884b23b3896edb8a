// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Stats are the allocator's; all are zero before Open.
func (a *Addresses) Stats() claims.Stats {
	if allocator := a.allocator.Load(); allocator != nil {
		return allocator.Stats()
	}
	return claims.Stats{}
}

// Settle compares the node's entries in these networks with what runs here, and
// frees the rest.
func (a *Addresses) Settle(ctx context.Context, keys ...claims.Key) error {
	allocator, err := a.open()
	if err != nil {
		return err
	}
	return claimError(allocator.Settle(ctx, keys...))
}

// GiveBack frees what is kept ready, for the daemon's end. Claims must have ended.
func (a *Addresses) GiveBack(ctx context.Context) error {
	allocator := a.allocator.Load()
	if allocator == nil {
		return nil
	}
	return claimError(allocator.GiveBack(ctx))
}

// Close ends the allocator's work. What was not written is in the journal.
func (a *Addresses) Close() {
	if allocator := a.allocator.Load(); allocator != nil {
		allocator.Close()
	}
}
