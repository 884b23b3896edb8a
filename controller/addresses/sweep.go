// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// sweeper looks at all networks, Nodes and DanmEps now and then, and queues the
// networks that need work. The leader runs one; another leader starts anew.
type sweeper struct {
	*Controller
	absences absences
	// blocking are the DanmEps that were reported to keep a namespace.
	blocking map[types.UID]bool
	// queue makes the Controller look at a network.
	queue func(context.Context, network.Ref)
}

// Start implements manager.Runnable.
func (s *sweeper) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	select {
	case <-s.watching:
	case <-ctx.Done():
		return nil
	}
	for {
		start := s.cfg.Now()
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot look at all networks; will try again", "in", s.cfg.Every.String())
		}
		log.V(1).Info("Looked at all networks", "took", s.since(start).String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.cfg.Every):
		}
	}
}

// sweep looks once. The networks come first: what is published while it looks is in
// the DanmEps then.
func (s *sweeper) sweep(ctx context.Context) error {
	found := survey{holders: map[life][]network.Ref{}, pools: map[network.Ref]pool{}}
	for _, kind := range objects.Kinds() {
		if err := s.survey(ctx, kind, &found); err != nil {
			return err
		}
	}
	s.metrics.pools(found.pools)
	s.forgetReported(found.pools)
	s.metrics.recovering.Set(float64(found.recovering))
	for _, ref := range found.due {
		s.queue(ctx, ref)
	}
	s.forgetRebuilds()
	if err := s.farewell(ctx, found.holders); err != nil {
		return err
	}
	s.metrics.swept.SetToCurrentTime()
	return nil
}

// farewell finds the lives that are over for good, removes their DanmEps, and
// queues the networks in which they have entries.
func (s *sweeper) farewell(ctx context.Context, holders map[life][]network.Ref) error {
	eps, err := s.allEndpoints(ctx)
	if err != nil {
		return err
	}
	known, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	owned := map[life][]*v1.DanmEp{}
	suspects := map[life]bool{}
	for l := range holders {
		suspects[l] = !known.has(l)
	}
	for i := range eps {
		if l := lifeOf(&eps[i]); l.ofNode() {
			owned[l] = append(owned[l], &eps[i])
			suspects[l] = !known.has(l)
		}
	}
	gone := s.absences.look(s.cfg.Now(), s.cfg.Grace, only(suspects))
	s.departed.set(gone)
	var errs []error
	for _, l := range gone {
		if err := s.removeEndpoints(ctx, l, owned[l], known); err != nil {
			errs = append(errs, fmt.Errorf("remove DanmEps of node %s: %w", l.name, err))
		}
		for _, ref := range holders[l] {
			s.queue(ctx, ref)
		}
	}
	return errors.Join(append(errs, s.removeForged(ctx, eps, known), s.moveOutlived(ctx, eps, known))...)
}

// only returns the lives that are true.
func only(suspects map[life]bool) map[life]bool {
	for l, yes := range suspects {
		if !yes {
			delete(suspects, l)
		}
	}
	return suspects
}
