// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/tenant"
)

// Store reads and writes TenantConfigs. Each error that is not ErrConflict counts as
// "the answer was lost": the write may have been applied.
type Store interface {
	// List reads all TenantConfigs with quorum, never from a cache.
	List(ctx context.Context) ([]*v1.TenantConfig, error)
	// Update writes status.reservations and returns the object as written. It
	// returns ErrConflict when the stored object has another resourceVersion or
	// UID or is gone. It does not retry.
	Update(ctx context.Context, c *v1.TenantConfig) (*v1.TenantConfig, error)
}

// ErrConflict says that somebody else wrote first.
var ErrConflict = errors.New("somebody else wrote first")

// ErrUnavailable says that the API server did not answer, or too many write.
var ErrUnavailable = errors.New("reservations cannot be stored now: try again")

// Request asks for a place.
type Request struct {
	// Wish is what the network needs.
	Wish tenant.Wish
	// Owner has the token that the network will bear.
	Owner tenant.Owner
	// Taken may be nil. It is called from another goroutine.
	Taken tenant.Taken
	// Alive are the tokens of the networks that the namespace has, by which its budget is
	// checked; nil checks none.
	Alive map[string]bool
	// DryRun decides without reserving anything.
	DryRun bool
}
