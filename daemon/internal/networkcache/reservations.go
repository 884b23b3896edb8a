// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// reservationCache confirms the assignments (VLAN or VXLAN IDs) of TenantNetworks. An
// assignment is an annotation of the network, which a tenant can write while the admission
// webhook is not installed. A tenant cannot write the status of a TenantConfig, which has the
// reservation before the network exists.
type reservationCache struct {
	conn *kubeclient.Connection

	mu sync.Mutex // guards the fields below
	// byToken has the reservations of all TenantConfigs, as of a list that began at readAt.
	byToken map[string]tenant.Reservation
	readAt  time.Time
	// readErr names the TenantConfigs whose reservations could not be parsed.
	readErr error
}

// confirm reports whether a TenantConfig confirms the assignment of a network that was read at
// that time, or whether the network has no assignment. An error means that this is unknown, and
// the caller must try again.
func (r *reservationCache) confirm(ctx context.Context, n *network.Network, readAt time.Time) (bool, error) {
	a, ok := assignmentOf(n)
	if !ok {
		return true, nil
	}
	if res, ok := r.get(a.Token); ok && reservationCovers(res, a.Slot, n.Ref) {
		return true, nil
	}
	err := r.refresh(ctx, readAt)
	res, ok := r.get(a.Token)
	if !ok {
		return false, err
	}
	return reservationCovers(res, a.Slot, n.Ref), nil
}

// assignmentOf returns the assignment of a network. It returns false for an assignment that
// cannot be parsed; network.CheckAssignment reports that error.
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
	res, ok := r.byToken[token]
	return res, ok
}

// reservationCovers reports whether a reservation is for that network and slot. The owner's
// name ends in "*" when the API server generated the network's name after the reservation.
func reservationCovers(r tenant.Reservation, slot network.TenantSlot, ref network.Ref) bool {
	prefix, generated := strings.CutSuffix(r.Owner.Name, "*")
	named := r.Owner.Name == ref.Name || generated && strings.HasPrefix(ref.Name, prefix)
	return r.Slot == slot && r.Owner.Namespace == ref.Namespace && named
}

// refresh lists the TenantConfigs with quorum, unless a list has begun after that time. An older
// list is not needed: the reservation exists before the network does.
func (r *reservationCache) refresh(ctx context.Context, since time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readAt.After(since) {
		return r.readErr
	}
	begun := time.Now()
	var list v1.TenantConfigList
	if err := r.conn.Direct.List(ctx, &list); err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	byToken := map[string]tenant.Reservation{}
	var failed []error
	for i := range list.Items {
		reservations, err := tenant.ParseReservations(list.Items[i].Status.Reservations)
		if err != nil {
			failed = append(failed, fmt.Errorf("parse status.reservations of TenantConfig %s: %w", list.Items[i].Name, err))
			continue // the reservations of the other TenantConfigs are valid
		}
		for res := range reservations.All() {
			byToken[res.Owner.Token] = res
		}
	}
	r.byToken, r.readAt, r.readErr = byToken, begun, errors.Join(failed...)
	return r.readErr
}
