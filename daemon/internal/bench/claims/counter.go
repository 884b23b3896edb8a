// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// writeCounter counts the writes of all clients of a run.
type writeCounter struct {
	writes, conflicts atomic.Int64
}

// reset sets the counters to 0.
func (c *writeCounter) reset() {
	c.writes.Store(0)
	c.conflicts.Store(0)
}

// wrap returns a store that counts its writes.
func (c *writeCounter) wrap(s allocator.Store) allocator.Store { return countingStore{s, c} }

// countingStore is a store that counts its writes.
type countingStore struct {
	allocator.Store
	counter *writeCounter
}

// Update implements nodeClient.Store.
func (s countingStore) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	written, err := s.Store.Update(ctx, o)
	s.counter.writes.Add(1)
	if errors.Is(err, status.ErrConflict) {
		s.counter.conflicts.Add(1)
	}
	return written, err
}
