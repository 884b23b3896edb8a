// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// sweeper looks at all networks, Nodes and DanmEps now and then, and queues the
// networks that need work. The leader runs one; another leader starts anew.
type sweeper struct {
	*Controller
	goneSince goneSince
	// reportedBlocking are the DanmEps that were reported to keep a namespace.
	reportedBlocking map[types.UID]bool
	// enqueue makes the Controller look at a network.
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
		start := s.cfg.Now()
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot look at all networks; will try again", "in", s.cfg.SweepInterval.String())
		}
		log.V(1).Info("Looked at all networks", "took", s.since(start).String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.cfg.SweepInterval):
		}
	}
}

// sweep looks once. The networks come first: what is published while it looks is in
// the DanmEps then.
func (s *sweeper) sweep(ctx context.Context) error {
	found := sweepResult{holders: map[incarnation][]network.Ref{}, pools: map[network.Ref]poolSize{}}
	for _, kind := range kube.NetworkKinds() {
		if err := s.sweepKind(ctx, kind, &found); err != nil {
			return err
		}
	}
	s.metrics.setPools(found.pools)
	s.pruneReportedConflicts(found.pools)
	s.metrics.recovering.Set(float64(found.recovering))
	for _, ref := range found.needReconcile {
		s.enqueue(ctx, ref)
	}
	s.pruneRebuilds()
	if err := s.collectGoneNodes(ctx, found.holders); err != nil {
		return err
	}
	s.metrics.lastSweep.SetToCurrentTime()
	return nil
}

// sweepResult is what one look at all networks found.
type sweepResult struct {
	// holders are the networks in which a life has an entry.
	holders map[incarnation][]network.Ref
	// pools are their numbers.
	pools map[network.Ref]poolSize
	// needReconcile are the networks with work that needs no Node to be gone.
	needReconcile []network.Ref
	// recovering counts the networks in recovery.
	recovering int
}

// sweepKind reads all networks of a kind from the API server's watch cache, in one
// page: the watch cache knows no smaller ones.
func (s *sweeper) sweepKind(ctx context.Context, kind string, found *sweepResult) error {
	list, err := kube.NewNetworkList(kind)
	if err != nil {
		return err
	}
	opts := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := s.direct.List(ctx, list, opts); err != nil {
		return fmt.Errorf("list %ss: %w", kind, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok {
			return nil
		}
		r := newNetworkSnapshot(kube.NetworkRefOf(kind, obj), obj)
		found.pools[r.Ref] = poolSize{r.Allocated, r.Capacity}
		for _, l := range r.incarnations() {
			found.holders[l] = append(found.holders[l], r.Ref)
		}
		if r.Recovering() {
			found.recovering++
		}
		if s.needsReconcile(ctx, r) {
			found.needReconcile = append(found.needReconcile, r.Ref)
		}
		return nil
	})
}

// needsReconcile reports whether a network needs work. When that cannot be told, it does: the
// error is told with that work.
func (s *sweeper) needsReconcile(ctx context.Context, r networkSnapshot) bool {
	_, rebuild := r.rebuildRequest()
	_, skip := r.skipRequest()
	_, marked := r.obj.GetAnnotations()[v1.RecoveringAnnotation]
	if rebuild || skip || marked || r.Recovering() || len(r.deferredNodes()) > 0 || hasConflictCondition(r) || r.Deleting && r.Protected {
		return true
	}
	suspect, err := s.bitmapNeedsRepair(ctx, r)
	if suspect || err != nil {
		return true
	}
	before := objectConditions(r)
	return !r.Deleting && !conditionsEqual(before, desiredConditions(before, r.Generation, poolUsages(r.Object, s.reservedAddresses(ctx, r.Network)), recoveryProgress{}, conflictFindings{}))
}

// collectGoneNodes finds the lives that are over for good, removes their DanmEps, and
// queues the networks in which they have entries.
func (s *sweeper) collectGoneNodes(ctx context.Context, holders map[incarnation][]network.Ref) error {
	eps, err := s.cachedEndpoints(ctx)
	if err != nil {
		return err
	}
	known, err := s.cachedNodes(ctx)
	if err != nil {
		return err
	}
	owned := map[incarnation][]*v1.DanmEp{}
	suspects := map[incarnation]bool{}
	for l := range holders {
		suspects[l] = !known.has(l)
	}
	for i := range eps {
		if l := incarnationOf(&eps[i]); l.isNode() {
			owned[l] = append(owned[l], &eps[i])
			suspects[l] = !known.has(l)
		}
	}
	gone := s.goneSince.observe(s.cfg.Now(), s.cfg.NodeGracePeriod, keepTrue(suspects))
	s.goneNodes.set(gone)
	var errs []error
	for _, l := range gone {
		if err := s.removeEndpoints(ctx, l, owned[l], known); err != nil {
			errs = append(errs, fmt.Errorf("remove DanmEps of node %s: %w", l.name, err))
		}
		for _, ref := range holders[l] {
			s.enqueue(ctx, ref)
		}
	}
	return errors.Join(append(errs, s.removeForged(ctx, eps, known), s.moveStuckEndpoints(ctx, eps, known))...)
}

// keepTrue returns the lives that are true.
func keepTrue(suspects map[incarnation]bool) map[incarnation]bool {
	for l, yes := range suspects {
		if !yes {
			delete(suspects, l)
		}
	}
	return suspects
}
