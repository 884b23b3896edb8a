// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
)

// How often the sweeper looks: soon after a deletion, never more often than it takes
// to list all networks, and every minute without a reason: nothing tells of a creation
// that failed after its reservation.
const (
	sweepRest  = 2 * time.Second
	sweepEvery = time.Minute
)

// sweeper compares reservations with networks, in one replica at a time.
type sweeper struct {
	reader client.Reader
	desk   *reserve.Desk
	log    logr.Logger
	wake   chan struct{}

	mu sync.Mutex
	// deleted are the tokens of networks that were deleted since the last look.
	deleted []string
	memory  tenant.Sweeper
	doubts  doubts
}

// maxDeleted bounds what a replica that does not sweep remembers. What it forgets is
// released a minute later.
const maxDeleted = 10000

// gone notes the deletion of a TenantNetwork and makes the sweeper look; it never
// blocks.
func (s *sweeper) gone(obj client.Object) {
	a, err := network.ParseAssignment(obj.GetAnnotations()[v1.AssignedAnnotation])
	if err != nil {
		return
	}
	s.mu.Lock()
	if len(s.deleted) < maxDeleted {
		s.deleted = append(s.deleted, a.Token)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// NeedLeaderElection says that one replica sweeps.
func (s *sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends.
func (s *sweeper) Start(ctx context.Context) error {
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Error(err, "Compare reservations with networks")
		}
		if !s.rest(ctx) {
			return nil
		}
	}
}

// rest waits for a reason to look again, and reports whether ctx goes on.
func (s *sweeper) rest(ctx context.Context) bool {
	wait := sweepEvery
	if next, ok := s.memory.Next(time.Now()); ok {
		wait = next
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(max(wait, sweepRest)):
		return true
	case <-s.wake:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(sweepRest):
		return true
	}
}

// sweep first reads the reservations, then lists the networks: a reservation whose
// network is not in that list either lost it or waits for it.
func (s *sweeper) sweep(ctx context.Context) error {
	reservations, err := s.desk.Reserved(ctx)
	if err != nil {
		return fmt.Errorf("read reservations: %w", err)
	}
	alive, err := s.assigned(ctx)
	if err != nil {
		return err
	}
	reserved := map[string]bool{}
	for _, r := range reservations {
		reserved[r.Owner.Token] = true
	}
	living := map[string]bool{}
	var unreserved []tenant.Reservation
	for token, r := range alive {
		living[token] = true
		if !reserved[token] {
			unreserved = append(unreserved, r)
		}
	}
	s.adopt(ctx, unreserved)
	s.mu.Lock()
	for _, token := range s.deleted {
		s.memory.Saw(token)
	}
	s.deleted = nil
	s.mu.Unlock()
	gone := s.memory.Look(time.Now(), reserved, living)
	if len(gone) == 0 {
		return nil
	}
	s.log.Info("Releasing reservations of TenantNetworks that are gone", "count", len(gone))
	return s.desk.Release(ctx, gone...)
}

// assigned lists what the networks say that they were assigned, by token.
func (s *sweeper) assigned(ctx context.Context) (map[string]tenant.Reservation, error) {
	found := map[string]tenant.Reservation{}
	err := eachPage(ctx, s.reader, newTenantNetworkMetadata, func(obj client.Object) {
		a, err := network.ParseAssignment(obj.GetAnnotations()[v1.AssignedAnnotation])
		if err != nil {
			return // the daemon refuses it too
		}
		owner := tenant.Owner{Namespace: obj.GetNamespace(), Name: obj.GetName(), Token: a.Token}
		found[a.Token] = tenant.Reservation{Place: a.Place, Owner: owner}
	})
	if err != nil {
		return nil, fmt.Errorf("list TenantNetworks: %w", err)
	}
	return found, nil
}
