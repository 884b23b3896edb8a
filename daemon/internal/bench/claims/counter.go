// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// writeCounter counts the writes of all clients of a run.
type writeCounter struct {
	writes, conflicts atomic.Int64
}

// reset begins anew.
func (c *writeCounter) reset() {
	c.writes.Store(0)
	c.conflicts.Store(0)
}

// wrap returns the store with its writes counted.
func (c *writeCounter) wrap(s claims.Store) claims.Store { return countingStore{s, c} }

type countingStore struct {
	claims.Store
	counter *writeCounter
}

// Update implements claims.Store.
func (s countingStore) Update(ctx context.Context, o *claims.Object) (*claims.Object, error) {
	written, err := s.Store.Update(ctx, o)
	s.counter.writes.Add(1)
	if errors.Is(err, claims.ErrConflict) {
		s.counter.conflicts.Add(1)
	}
	return written, err
}
