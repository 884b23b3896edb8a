// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// Controller looks after the addresses of all networks, one network at a time.
type Controller struct {
	cfg     Config
	steward Steward
	events  Recorder
	metrics *metrics
	// cached reads Nodes and networks as metadata, and DanmEps; it may be behind.
	cached client.Reader
	// direct reads from the API server, and writes.
	direct client.Client

	// watching is closed by the first request, that for no network: the queue is worked
	// once all watches are in place. The first sweep waits for it, since it sees what
	// they do not report, the networks that are there before.
	watching  chan struct{}
	beginOnce sync.Once

	departed departed
	members  members
	nics     nics
	// rebuilt is when a network's bitmap was last rebuilt on request.
	rebuilt sync.Map // claims.Key → time.Time
	// looked is when a network was last worked.
	looked sync.Map // network.Ref → time.Time
	// reported are a network's conflicts of which its Pods have Events.
	reported sync.Map // claims.Key → map[string]bool
}

// fromWatchCache makes a read that the API server answers out of memory.
func fromWatchCache() *metav1.GetOptions { return &metav1.GetOptions{ResourceVersion: "0"} }

// Reconcile does all that is due for one network. Its error brings the network
// back after a while.
func (c *Controller) Reconcile(ctx context.Context, ref network.Ref) (reconcile.Result, error) {
	if ref == (network.Ref{}) {
		c.beginOnce.Do(func() { close(c.watching) })
		return reconcile.Result{}, nil
	}
	c.looked.Store(ref, c.cfg.Now())
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("network", ref.String()))
	obj, err := objects.New(ref.Kind)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	if err := c.direct.Get(ctx, objects.Key(ref), obj, &client.GetOptions{Raw: fromWatchCache()}); apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get %s: %w", ref, err)
	}
	return c.serve(ctx, read(ref, obj))
}

// afresh is how long the watch cache may be behind a write.
const afresh = 50 * time.Millisecond

// serve does what a reading of a network asks for. One duty's failure keeps none of
// the others from being done.
func (c *Controller) serve(ctx context.Context, r reading) (reconcile.Result, error) {
	waiting, err := c.recover(ctx, r)
	if waiting.over {
		return reconcile.Result{RequeueAfter: afresh}, nil
	}
	again, rebuildErr := c.obeyRebuild(ctx, r)
	evictErr := c.evict(ctx, r)
	conflicts, auditErr := c.audit(ctx, r)
	errs := []error{err, rebuildErr, evictErr, auditErr, c.obeySkip(ctx, r), c.endDeletion(ctx, r)}
	since := waiting.since
	if err == nil && len(waiting.awaited) == 0 {
		since = "" // it is over
	}
	errs = append(errs, c.mark(ctx, r, since))
	if err == nil { // else nobody can tell who is awaited
		errs = append(errs, c.tell(ctx, r, waiting, conflicts))
	}
	if r.Recovering() && (again == 0 || again > c.cfg.Hurry) {
		again = c.cfg.Hurry
	}
	if r.Deleting && r.Protected && again == 0 {
		again = c.cfg.Pace // caches may have been behind what brought it here
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// endDeletion lets a network go that is in deletion, when caches say that nobody uses it.
// Nodes give back what they hold, and each write of theirs brings the network here again;
// so does the end of its last DanmEp (onRemoval).
func (c *Controller) endDeletion(ctx context.Context, r reading) error {
	if !r.Deleting || !r.Protected || len(r.lives()) > 0 {
		return nil
	}
	eps, err := c.endpoints(ctx, r.Ref)
	if err != nil || slices.ContainsFunc(eps, func(e claims.Endpoint) bool { return e.NetworkUID == "" || e.NetworkUID == r.UID }) {
		return err
	}
	done, err := c.steward.EndDeletion(ctx, r.key())
	if err != nil {
		return fmt.Errorf("end the deletion of %s: %w", r.Ref, err)
	}
	if done {
		logr.FromContextOrDiscard(ctx).Info("Nobody uses the network any more: its deletion ends")
	}
	return nil
}

// since reports how long ago a time was, a long time for the zero time.
func (c *Controller) since(t time.Time) time.Duration { return c.cfg.Now().Sub(t) }
