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

// The collection runs soon after a deletion, not more often than it takes to list all networks, and
// every minute, because no event reports a creation that failed after its reservation.
const (
	gcMinInterval = 2 * time.Second
	gcInterval    = time.Minute
)

// reservationGC releases the reservations of TenantNetworks that do not exist any more, in one
// replica at a time.
type reservationGC struct {
	reader    client.Reader
	allocator *reserve.Allocator
	log       logr.Logger
	wake      chan struct{}
	// controllerNamespace is where package addresses moves DanmEps that block the deletion of their
	// namespace.
	controllerNamespace string

	mu sync.Mutex
	// deletedTokens are the tokens of networks that were deleted since the last collection.
	deletedTokens []string
	orphans       tenant.OrphanDetector
	unconfirmed   unconfirmedAssignments
}

// unconfirmedAssignments are the logged reasons why networks' assignments are not confirmed, by
// token, so that each is logged once.
type unconfirmedAssignments map[string]string

// maxDeletedTokens bounds the memory of a replica that does not lead. A token beyond it is released
// a minute later.
const maxDeletedTokens = 10000

// onNetworkDeleted records the deletion of a TenantNetwork and starts a collection. It never
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

// NeedLeaderElection implements manager.LeaderElectionRunnable: one replica collects.
func (s *reservationGC) NeedLeaderElection() bool { return true }

// Start collects until ctx ends.
func (s *reservationGC) Start(ctx context.Context) error {
	for {
		if err := s.collect(ctx); err != nil && ctx.Err() == nil {
			s.log.Error(err, "Failed to compare reservations with networks")
		}
		if !s.wait(ctx) {
			return nil
		}
	}
}

// wait waits until the next collection, and reports false when ctx ended.
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

// collect reads the reservations, and then lists the networks: a reservation whose network is not
// in that list has lost it, or waits for it.
func (s *reservationGC) collect(ctx context.Context) error {
	reservations, err := s.allocator.List(ctx)
	if err != nil {
		return fmt.Errorf("read reservations: %w", err)
	}
	assigned, uids, err := s.listAssignments(ctx)
	if err != nil {
		return err
	}
	reserved, owners := map[string]bool{}, map[string]tenant.Owner{}
	for _, r := range reservations {
		reserved[r.Owner.Token], owners[r.Owner.Token] = true, r.Owner
	}
	living := map[string]bool{}
	var unreserved []tenant.Reservation
	for token, r := range assigned {
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
	s.log.Info("Releasing reservations of deleted TenantNetworks", "count", len(gone))
	return s.allocator.Release(ctx, gone...)
}

// listAssignments lists the assignments in the networks' annotations, by token, and the UIDs of all
// networks.
func (s *reservationGC) listAssignments(ctx context.Context) (map[string]tenant.Reservation, map[client.ObjectKey]string, error) {
	found, uids := map[string]tenant.Reservation{}, map[client.ObjectKey]string{}
	err := eachListItem(ctx, s.reader, newTenantNetworkMetadata, func(obj client.Object) {
		uids[client.ObjectKeyFromObject(obj)] = string(obj.GetUID())
		a, err := network.ParseAssignment(obj.GetAnnotations()[v1.AssignedAnnotation])
		if err != nil {
			return // the node daemon rejects it too
		}
		owner := tenant.Owner{Namespace: obj.GetNamespace(), Name: obj.GetName(), Token: a.Token}
		found[a.Token] = tenant.Reservation{Slot: a.Slot, Owner: owner}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list TenantNetworks: %w", err)
	}
	return found, uids, nil
}

// adopt restores the reservations of networks that a backup tool or another API server did not
// restore, where an administrator requests it. An assignment without a reservation may also be
// forged at a time without admission.
func (s *reservationGC) adopt(ctx context.Context, unreserved []tenant.Reservation) {
	if len(unreserved) == 0 {
		s.unconfirmed = nil
		return
	}
	refused, err := s.allocator.Adopt(ctx, s.adoptionClaims(ctx, unreserved))
	if err != nil {
		s.log.Error(err, "Failed to restore reservations of TenantNetworks")
		return
	}
	unconfirmed := unconfirmedAssignments{}
	for _, r := range unreserved {
		why, ok := refused[r.Owner.Token]
		if !ok {
			continue
		}
		unconfirmed[r.Owner.Token] = why.Error()
		if s.unconfirmed[r.Owner.Token] != why.Error() {
			s.log.Error(why, unconfirmedMessage(why), "network", r.Owner.String(), "place", r.Slot.String())
		}
	}
	s.unconfirmed = unconfirmed
}

// adoptionClaims adds the labels of the namespaces. A network whose namespace cannot be read waits
// for the next collection.
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

// unconfirmedMessage is the log message for a network whose assignment is not confirmed.
func unconfirmedMessage(why error) string {
	if errors.Is(why, tenant.ErrSlotTaken) {
		return "Found a TenantNetwork with the assignment of another one: delete it"
	}
	return "Found a TenantNetwork with an assignment that is not reserved, which nodes reject: " +
		"delete it, or after a restore annotate its TenantConfig with danm.io/take-over=true"
}

// withoutPods returns those tokens of deleted networks to which no Pod is attached. A network
// without its finalizer can be deleted while Pods run: they stay on its VLAN or VXLAN, which must
// not go to another tenant before their DanmEps are gone. The list of networks is older than that
// of DanmEps; a DanmEp of a network that was created in between keeps an ID for a minute.
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
		s.log.Info("Kept the reservation of a deleted TenantNetwork that has Pods", "network", owner.String())
	}
	return free, nil
}

// hasEndpoints reports whether a DanmEp is on a deleted network of that name, and not on the
// present one with the UID. A DanmEp that is moved exists in its new namespace before it leaves the
// old one, which is therefore listed first.
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
