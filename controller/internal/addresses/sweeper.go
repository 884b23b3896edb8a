// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// sweeper compares all networks, Nodes and DanmEps at an interval, and queues the networks that
// need work. The leader runs one, which starts without the memory of the last leader.
type sweeper struct {
	cluster *clusterReader
	client  client.Client
	audit   *bitmapAudit
	danmEps *danmEpGC
	metrics *Metrics
	now     func() time.Time

	interval, nodeGracePeriod time.Duration
	// watchesStarted is closed when the first sweep may begin.
	watchesStarted <-chan struct{}
	goneSince      goneSince
	// goneNodes is set by each sweep.
	goneNodes *goneIncarnations
	// enqueue makes the Controller reconcile a network.
	enqueue func(context.Context, network.Ref)
}

// Start implements manager.Runnable.
func (s *sweeper) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	select {
	case <-s.watchesStarted:
	case <-ctx.Done():
		return nil
	}
	for {
		start := s.now()
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Failed to sweep all networks", "retryAfter", s.interval.String())
		}
		log.V(1).Info("Swept all networks", "took", s.now().Sub(start).String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.interval):
		}
	}
}

// sweep compares everything once. It lists the networks before the DanmEps, so that an address
// whose DanmEp is published meanwhile is covered by that DanmEp.
func (s *sweeper) sweep(ctx context.Context) error {
	found := sweepResult{holders: map[incarnation][]network.Ref{}, pools: map[network.Ref][]v1.PoolStatus{}}
	for _, kind := range kube.NetworkKinds() {
		if err := s.sweepKind(ctx, kind, &found); err != nil {
			return err
		}
	}
	s.metrics.setPools(found.pools)
	s.audit.pruneReported(found.pools)
	s.metrics.recovering.Set(float64(found.recovering))
	for _, ref := range found.needReconcile {
		s.enqueue(ctx, ref)
	}
	s.audit.pruneRebuilds()
	if err := s.collectGoneNodes(ctx, found.holders); err != nil {
		return err
	}
	s.metrics.lastSweep.SetToCurrentTime()
	return nil
}

// sweepResult is what a sweep found in the networks.
type sweepResult struct {
	// holders are the networks in which a Node has an entry.
	holders map[incarnation][]network.Ref
	// pools are the networks' numbers of addresses.
	pools map[network.Ref][]v1.PoolStatus
	// needReconcile are the networks that need work for another reason than a deleted Node.
	needReconcile []network.Ref
	// recovering counts the networks in recovery.
	recovering int
}

// sweepKind reads all networks of a kind from the API server's watch cache, which ignores limits. A
// network with a DanmEp that cannot be read keeps its numbers, and does not stop the sweep of others.
func (s *sweeper) sweepKind(ctx context.Context, kind string, found *sweepResult) error {
	list, err := kube.NewNetworkList(kind)
	if err != nil {
		return err
	}
	fromMemory := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := s.client.List(ctx, list, fromMemory); err != nil {
		return fmt.Errorf("list %ss: %w", kind, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok {
			return nil
		}
		r := newNetworkSnapshot(kube.NetworkRefOf(kind, obj), obj)
		pools, err := s.cluster.countPools(ctx, r)
		if err != nil { // the reconciliation returns it
			pools = objectPools(r)
		}
		found.pools[r.Ref] = pools
		for _, l := range r.incarnations() {
			found.holders[l] = append(found.holders[l], r.Ref)
		}
		if r.Recovering() {
			found.recovering++
		}
		if err != nil || s.needsReconcile(ctx, r, pools) {
			found.needReconcile = append(found.needReconcile, r.Ref)
		}
		return nil
	})
}

// needsReconcile reports whether a network needs work. It is true when that is unknown: the
// reconciliation then returns the error.
func (s *sweeper) needsReconcile(ctx context.Context, r networkSnapshot, pools []v1.PoolStatus) bool {
	_, rebuild := r.rebuildRequest()
	_, skip := r.skipRequest()
	_, marked := r.obj.GetAnnotations()[v1.RecoveringAnnotation]
	if rebuild || skip || marked || r.Recovering() || len(r.deferredNodes()) > 0 || hasConflictCondition(r) || r.Deleting && r.Protected {
		return true
	}
	if missing, err := s.cluster.missesFinalizer(ctx, r); missing || err != nil {
		return true
	}
	if suspect, err := s.audit.isSuspect(ctx, r); suspect || err != nil {
		return true
	}
	before := objectConditions(r)
	after := desiredConditions(before, r.Generation, pools, newGrowthAdvice(r.Object), recoveryProgress{}, conflictFindings{})
	return !r.Deleting && (!conditionsEqual(before, after) || observedGeneration(r) != r.Generation || !slices.Equal(objectPools(r), pools))
}

// collectGoneNodes finds the Nodes that have been gone for the grace period, removes their DanmEps,
// and queues the networks in which they have entries.
func (s *sweeper) collectGoneNodes(ctx context.Context, holders map[incarnation][]network.Ref) error {
	eps, err := s.cluster.cachedEndpoints(ctx)
	if err != nil {
		return err
	}
	nodes, err := s.cluster.cachedNodes(ctx)
	if err != nil {
		return err
	}
	owned := map[incarnation][]*v1.DanmEp{}
	suspects := map[incarnation]bool{}
	for l := range holders {
		suspects[l] = !nodes.has(l)
	}
	for i := range eps {
		if l := incarnationOf(&eps[i]); l.isNode() {
			owned[l] = append(owned[l], &eps[i])
			suspects[l] = !nodes.has(l)
		}
	}
	gone := s.goneSince.observe(s.now(), s.nodeGracePeriod, keepTrue(suspects))
	s.goneNodes.set(gone)
	var errs []error
	for _, l := range gone {
		if err := s.danmEps.removeOfNode(ctx, l, owned[l], nodes); err != nil {
			errs = append(errs, fmt.Errorf("remove DanmEps of node %s: %w", l.name, err))
		}
		for _, ref := range holders[l] {
			s.enqueue(ctx, ref)
		}
	}
	return errors.Join(append(errs, s.danmEps.removeForged(ctx, eps, nodes), s.danmEps.moveStuckEndpoints(ctx, eps, nodes))...)
}

// keepTrue deletes the entries that are false.
func keepTrue(suspects map[incarnation]bool) map[incarnation]bool {
	for l, yes := range suspects {
		if !yes {
			delete(suspects, l)
		}
	}
	return suspects
}

// goneSince maps incarnations that own an address or a DanmEp to when a sweep first missed their
// Node.
type goneSince map[incarnation]time.Time

// observe records one sweep. It returns those suspects, in no order, that every sweep has missed
// for at least grace. It forgets an incarnation that is no suspect any more, so that its next
// absence starts from zero.
func (a goneSince) observe(now time.Time, grace time.Duration, suspects map[incarnation]bool) []incarnation {
	maps.DeleteFunc(a, func(l incarnation, _ time.Time) bool { return !suspects[l] })
	var gone []incarnation
	for l := range suspects {
		if _, known := a[l]; !known {
			a[l] = now
		}
		if now.Sub(a[l]) >= grace {
			gone = append(gone, l)
		}
	}
	return gone
}
