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

// survey is what one look at all networks found.
type survey struct {
	// holders are the networks in which a life has an entry.
	holders map[life][]network.Ref
	// pools are their numbers.
	pools map[network.Ref]pool
	// due are the networks with work that needs no Node to be gone.
	due []network.Ref
	// recovering counts the networks in recovery.
	recovering int
}

// survey reads all networks of a kind from the API server's watch cache, in one
// page: the watch cache knows no smaller ones.
func (s *sweeper) survey(ctx context.Context, kind string, found *survey) error {
	list, err := objects.NewList(kind)
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
		r := read(objects.RefOf(kind, obj), obj)
		found.pools[r.Ref] = pool{r.Allocated, r.Capacity}
		for _, l := range r.lives() {
			found.holders[l] = append(found.holders[l], r.Ref)
		}
		if r.Recovering() {
			found.recovering++
		}
		if s.due(ctx, r) {
			found.due = append(found.due, r.Ref)
		}
		return nil
	})
}

// due reports whether a network needs work. When that cannot be told, it does: the
// error is told with that work.
func (s *sweeper) due(ctx context.Context, r reading) bool {
	_, rebuild := r.rebuild()
	_, skip := r.skip()
	_, marked := r.obj.GetAnnotations()[v1.RecoveringAnnotation]
	if rebuild || skip || marked || r.Recovering() || len(r.deferred()) > 0 || conflicting(r) || r.Deleting && r.Protected {
		return true
	}
	suspect, err := s.suspect(ctx, r)
	if suspect || err != nil {
		return true
	}
	before := objectConditions(r)
	return !r.Deleting && !same(before, desired(before, r.Generation, usesOf(r.Object, s.reserved(ctx, r.Network)), waiting{}, conflicts{}))
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
