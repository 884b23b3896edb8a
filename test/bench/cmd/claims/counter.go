// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// counter counts the writes of all clients of a run.
type counter struct {
	writes, conflicts atomic.Int64
}

// reset begins anew.
func (c *counter) reset() {
	c.writes.Store(0)
	c.conflicts.Store(0)
}

// over returns the store with its writes counted.
func (c *counter) over(s claims.Store) claims.Store { return counted{s, c} }

type counted struct {
	claims.Store
	counter *counter
}

// Update implements claims.Store.
func (s counted) Update(ctx context.Context, o *claims.Object) (*claims.Object, error) {
	written, err := s.Store.Update(ctx, o)
	s.counter.writes.Add(1)
	if errors.Is(err, claims.ErrConflict) {
		s.counter.conflicts.Add(1)
	}
	return written, err
}
