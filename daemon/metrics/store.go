// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Store measures the writes of a store.
func (m *Metrics) Store(s claims.Store) claims.Store {
	return &store{Store: s, metrics: m}
}

// store is one whose writes are measured.
type store struct {
	claims.Store
	metrics *Metrics
}

// Update implements claims.Store.
func (s *store) Update(ctx context.Context, o *claims.Object) (*claims.Object, error) {
	start := time.Now()
	written, err := s.Store.Update(ctx, o)
	s.metrics.writes.WithLabelValues(result(err)).Observe(time.Since(start).Seconds())
	return written, err
}

// result is one word for how a write ended.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, claims.ErrConflict):
		return "conflict"
	case errors.Is(err, claims.ErrNotFound):
		return "gone"
	}
	return "error"
}
