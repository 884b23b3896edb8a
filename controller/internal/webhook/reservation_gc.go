// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// How often the sweeper looks: soon after a deletion, never more often than it takes
// to list all networks, and every minute without a reason: nothing tells of a creation
// that failed after its reservation.
const (
	gcMinInterval = 2 * time.Second
	gcInterval    = time.Minute
)

// reservationGC compares reservations with networks, in one replica at a time.
type reservationGC struct {
	reader    client.Reader
	allocator *reserve.Allocator
	log       logr.Logger
	wake      chan struct{}
	// controllerNamespace is the namespace to which the controller moves DanmEps that outlive theirs.
	controllerNamespace string

	mu sync.Mutex
	// deletedTokens are the tokens of networks that were deleted since the last look.
	deletedTokens []string
	orphans       tenant.OrphanDetector
	unconfirmed   unconfirmedAssignments
}

// unconfirmedAssignments are what was said of networks that nobody confirms, by token, so that it is
// not said every minute.
type unconfirmedAssignments map[string]string

// maxDeletedTokens bounds what a replica that does not sweep remembers. What it forgets is
// released a minute later.
const maxDeletedTokens = 10000

// onNetworkDeleted notes the deletion of a TenantNetwork and makes the sweeper look; it never
// blocks.
func (s *reservationGC) onNetworkDeleted(obj client.Object) {
	a, err := network.ParseAssignment(obj.GetAnnotations()[v1.AssignedAnnotation])
	if err != nil {
		return
	}
	s.mu.Lock()
	if len(s.deletedTokens) < maxDeletedTokens {
		s.deletedTokens = append(s.deletedTokens, a.Token)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// NeedLeaderElection says that one replica sweeps.
func (s *reservationGC) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends.
func (s *reservationGC) Start(ctx context.Context) error {
	for {
		if err := s.collect(ctx); err != nil && ctx.Err() == nil {
			s.log.Error(err, "Compare reservations with networks")
		}
		if !s.wait(ctx) {
			return nil
		}
	}
}

// wait waits for a reason to look again, and reports whether ctx goes on.
func (s *reservationGC) wait(ctx context.Context) bool {
	wait := gcInterval
	if next, ok := s.orphans.NextCheck(time.Now()); ok {
		wait = next
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(max(wait, gcMinInterval)):
		return true
	case <-s.wake:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(gcMinInterval):
		return true
	}
}

// collect first reads the reservations, then lists the networks: a reservation whose
// network is not in that list either lost it or waits for it.
func (s *reservationGC) collect(ctx context.Context) error {
	reservations, err := s.allocator.List(ctx)
	if err != nil {
		return fmt.Errorf("read reservations: %w", err)
	}
	alive, uids, err := s.listAssignments(ctx)
	if err != nil {
		return err
	}
	reserved, owners := map[string]bool{}, map[string]tenant.Owner{}
	for _, r := range reservations {
		reserved[r.Owner.Token], owners[r.Owner.Token] = true, r.Owner
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
	for _, token := range s.deletedTokens {
		s.orphans.MarkSeen(token)
	}
	s.deletedTokens = nil
	s.mu.Unlock()
	gone, err := s.withoutPods(ctx, s.orphans.Orphans(time.Now(), reserved, living), owners, uids)
	if err != nil || len(gone) == 0 {
		return err
	}
	s.log.Info("Releasing reservations of TenantNetworks that are gone", "count", len(gone))
	return s.allocator.Release(ctx, gone...)
}

// listAssignments lists what the networks say that they were assigned, by token, and the UIDs of
// all networks.
func (s *reservationGC) listAssignments(ctx context.Context) (map[string]tenant.Reservation, map[client.ObjectKey]string, error) {
	found, uids := map[string]tenant.Reservation{}, map[client.ObjectKey]string{}
	err := eachListItem(ctx, s.reader, newTenantNetworkMetadata, func(obj client.Object) {
		uids[client.ObjectKeyFromObject(obj)] = string(obj.GetUID())
		a, err := network.ParseAssignment(obj.GetAnnotations()[v1.AssignedAnnotation])
		if err != nil {
			return // the daemon refuses it too
		}
		owner := tenant.Owner{Namespace: obj.GetNamespace(), Name: obj.GetName(), Token: a.Token}
		found[a.Token] = tenant.Reservation{Slot: a.Slot, Owner: owner}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list TenantNetworks: %w", err)
	}
	return found, uids, nil
}

// adopt gives networks back their reservations, which a backup tool or another API
// server did not restore, where a netadmin asks for it. An assignment that nobody
// reserved may also be a forgery, of a time without admission.
func (s *reservationGC) adopt(ctx context.Context, unreserved []tenant.Reservation) {
	if len(unreserved) == 0 {
		s.unconfirmed = nil
		return
	}
	refused, err := s.allocator.Adopt(ctx, s.adoptionClaims(ctx, unreserved))
	if err != nil {
		s.log.Error(err, "Reserve again what TenantNetworks were assigned")
		return
	}
	said := unconfirmedAssignments{}
	for _, r := range unreserved {
		why, ok := refused[r.Owner.Token]
		if !ok {
			continue
		}
		said[r.Owner.Token] = why.Error()
		if s.unconfirmed[r.Owner.Token] != why.Error() {
			s.log.Error(why, unconfirmedMessage(why), "network", r.Owner.String(), "place", r.Slot.String())
		}
	}
	s.unconfirmed = said
}

// adoptionClaims adds the labels of the namespaces; a network whose namespace cannot be read is
// left for the next look.
func (s *reservationGC) adoptionClaims(ctx context.Context, unreserved []tenant.Reservation) []reserve.AdoptionClaim {
	labels := map[string]map[string]string{}
	var claims []reserve.AdoptionClaim
	for _, r := range unreserved {
		found, known := labels[r.Owner.Namespace]
		if !known {
			var err error
			if found, err = namespaceLabels(ctx, s.reader, r.Owner.Namespace); err != nil {
				s.log.Error(err, "Failed to adopt the reservations of a namespace")
				continue
			}
			labels[r.Owner.Namespace] = found
		}
		claims = append(claims, reserve.AdoptionClaim{Reservation: r, NamespaceLabels: found})
	}
	return claims
}

// unconfirmedMessage says what to do about a network that nobody confirms.
func unconfirmedMessage(why error) string {
	if errors.Is(why, tenant.ErrSlotTaken) {
		return "A TenantNetwork says that it was assigned what another one has: delete it"
	}
	return "A TenantNetwork says that it was assigned what nobody reserved for it, so no node believes it: " +
		"delete it, or after a restore annotate its TenantConfig with danm.io/take-over=true"
}

// withoutPods returns those of the tokens of networks that are gone to which no Pod is attached.
// A network without its finalizer goes under Pods that run: they stay on its VLAN or VXLAN,
// which must not be another tenant's before their DanmEps are gone. The list of networks is
// older than that of DanmEps; a DanmEp of a network that came in between keeps an ID for a
// minute.
func (s *reservationGC) withoutPods(ctx context.Context, gone []string, owners map[string]tenant.Owner, uids map[client.ObjectKey]string) ([]string, error) {
	var free []string
	for _, token := range gone {
		owner := client.ObjectKey{Namespace: owners[token].Namespace, Name: owners[token].Name}
		used, err := s.hasEndpoints(ctx, owner, uids[owner])
		if err != nil {
			return nil, err
		}
		if !used {
			free = append(free, token)
			continue
		}
		s.orphans.Postpone(time.Now(), token)
		s.log.Info("Keeping the reservation of a TenantNetwork that is gone: Pods are still attached to it", "network", owner.String())
	}
	return free, nil
}

// hasEndpoints reports whether a DanmEp names a network of that name which is gone: another one
// than that with the UID, if there is one again. One that moves is in its new namespace
// before it leaves the old one, which is therefore listed first.
func (s *reservationGC) hasEndpoints(ctx context.Context, name client.ObjectKey, uid string) (bool, error) {
	used := false
	fresh := func() client.ObjectList { return &v1.DanmEpList{} }
	for _, namespace := range []string{name.Namespace, s.controllerNamespace} {
		err := eachListItem(ctx, s.reader, fresh, func(obj client.Object) {
			if ep, ok := obj.(*v1.DanmEp); ok {
				key := kube.NetworkKeyOf(ep)
				if from, moved := kube.MovedFrom(ep); moved {
					key.Ref.Namespace = from.Namespace
				}
				used = used || key.Ref == network.Ref{Kind: v1.KindTenantNetwork, Namespace: name.Namespace, Name: name.Name} && (key.UID == "" || key.UID != uid)
			}
		}, client.InNamespace(namespace), client.MatchingFields{"spec.NetworkName": name.Name})
		if err != nil {
			return false, fmt.Errorf("list DanmEps of TenantNetwork %s: %w", name, err)
		}
	}
	return used, nil
}
