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

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
)

// reservations are what TenantConfigs say that TenantNetworks were assigned. The
// annotation on a network is a tenant's object: where admission was not installed for
// a while, the tenant may have written it. The status of a TenantConfig is out of a
// tenant's reach, and has the reservation before there is a network.
type reservations struct {
	conn *Connection

	mu sync.Mutex
	// known are the reservations by token, as of a read that began then; damaged says
	// which TenantConfigs it lacks.
	known   map[string]tenant.Reservation
	began   time.Time
	damaged error
}

// confirm reports whether a network that was read at that time has what it says that it
// was assigned, or says nothing. An error says nothing about the network: try again.
func (r *reservations) confirm(ctx context.Context, n *network.Network, read time.Time) (bool, error) {
	a, ok := assignment(n)
	if !ok {
		return true, nil
	}
	if held, ok := r.get(a.Token); ok && covers(held, a.Place, n.Ref) {
		return true, nil
	}
	err := r.read(ctx, read)
	held, ok := r.get(a.Token)
	if !ok {
		return false, err
	}
	return covers(held, a.Place, n.Ref), nil
}

// assignment reads the annotation. What is wrong with one, Network.Assigned says.
func assignment(n *network.Network) (network.Assignment, bool) {
	if n == nil || n.Assignment == "" {
		return network.Assignment{}, false
	}
	a, err := network.ParseAssignment(n.Assignment)
	return a, err == nil
}

func (r *reservations) get(token string) (tenant.Reservation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, ok := r.known[token]
	return held, ok
}

// covers reports whether a reservation is for that network. The name of one that the
// API server was to name was not known at the time.
func covers(r tenant.Reservation, p network.Place, ref network.Ref) bool {
	prefix, generated := strings.CutSuffix(r.Owner.Name, "*")
	named := r.Owner.Name == ref.Name || generated && strings.HasPrefix(ref.Name, prefix)
	return r.Place == p && r.Owner.Namespace == ref.Namespace && named
}

// read lists the TenantConfigs, past any cache, unless somebody has begun to after the
// given time: what is reserved is, before there is a network.
func (r *reservations) read(ctx context.Context, since time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.After(since) {
		return r.damaged
	}
	began := time.Now()
	var list v1.TenantConfigList
	if err := r.conn.Direct.List(ctx, &list); err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	known := map[string]tenant.Reservation{}
	var failed []error
	for i := range list.Items {
		book, err := tenant.ParseBook(list.Items[i].Status.Reservations)
		if err != nil {
			failed = append(failed, fmt.Errorf("read status.reservations of TenantConfig %s: %w", list.Items[i].Name, err))
			continue // the others' networks need not wait
		}
		maps.Insert(known, byToken(book))
	}
	r.known, r.began, r.damaged = known, began, errors.Join(failed...)
	return r.damaged
}

func byToken(b *tenant.Book) func(yield func(string, tenant.Reservation) bool) {
	return func(yield func(string, tenant.Reservation) bool) {
		for held := range b.All() {
			if !yield(held.Owner.Token, held) {
				return
			}
		}
	}
}
