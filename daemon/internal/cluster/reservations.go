// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// reservationCache are what TenantConfigs say that TenantNetworks were assigned. The
// annotation on a network is a tenant's object: where admission was not installed for
// a while, the tenant may have written it. The status of a TenantConfig is out of a
// tenant's reach, and has the reservation before there is a network.
type reservationCache struct {
	conn *Connection

	mu sync.Mutex
	// byToken are the reservations by token, as of a read that began then; damaged says
	// which TenantConfigs it lacks.
	byToken map[string]tenant.Reservation
	readAt  time.Time
	readErr error
}

// confirm reports whether a network that was read at that time has what it says that it
// was assigned, or says nothing. An error says nothing about the network: try again.
func (r *reservationCache) confirm(ctx context.Context, n *network.Network, read time.Time) (bool, error) {
	a, ok := assignmentOf(n)
	if !ok {
		return true, nil
	}
	if held, ok := r.get(a.Token); ok && reservationCovers(held, a.Slot, n.Ref) {
		return true, nil
	}
	err := r.refresh(ctx, read)
	held, ok := r.get(a.Token)
	if !ok {
		return false, err
	}
	return reservationCovers(held, a.Slot, n.Ref), nil
}

// assignmentOf reads the annotation. What is wrong with one, Network.Assigned says.
func assignmentOf(n *network.Network) (network.Assignment, bool) {
	if n == nil || n.Assignment == "" {
		return network.Assignment{}, false
	}
	a, err := network.ParseAssignment(n.Assignment)
	return a, err == nil
}

func (r *reservationCache) get(token string) (tenant.Reservation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, ok := r.byToken[token]
	return held, ok
}

// reservationCovers reports whether a reservation is for that network. The name of one that the
// API server was to name was not known at the time.
func reservationCovers(r tenant.Reservation, p network.TenantSlot, ref network.Ref) bool {
	prefix, generated := strings.CutSuffix(r.Owner.Name, "*")
	named := r.Owner.Name == ref.Name || generated && strings.HasPrefix(ref.Name, prefix)
	return r.Slot == p && r.Owner.Namespace == ref.Namespace && named
}

// refresh lists the TenantConfigs, past any cache, unless somebody has begun to after the
// given time: what is reserved is, before there is a network.
func (r *reservationCache) refresh(ctx context.Context, since time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readAt.After(since) {
		return r.readErr
	}
	began := time.Now()
	var list v1.TenantConfigList
	if err := r.conn.Direct.List(ctx, &list); err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	known := map[string]tenant.Reservation{}
	var failed []error
	for i := range list.Items {
		book, err := tenant.ParseReservations(list.Items[i].Status.Reservations)
		if err != nil {
			failed = append(failed, fmt.Errorf("read status.reservations of TenantConfig %s: %w", list.Items[i].Name, err))
			continue // the others' networks need not wait
		}
		maps.Insert(known, reservationsByToken(book))
	}
	r.byToken, r.readAt, r.readErr = known, began, errors.Join(failed...)
	return r.readErr
}

func reservationsByToken(b *tenant.Reservations) func(yield func(string, tenant.Reservation) bool) {
	return func(yield func(string, tenant.Reservation) bool) {
		for held := range b.All() {
			if !yield(held.Owner.Token, held) {
				return
			}
		}
	}
}
