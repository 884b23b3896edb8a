// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// Add makes a manager run a Controller while it leads. The manager's client must
// read from the API server, and its cache be made with Cached.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	events, err := NewRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	c := &Controller{
		cfg: cfg.withDefaults(), metrics: newMetrics(cfg.Registry), events: events,
		cached: m.GetCache(), direct: m.GetClient(), watching: make(chan struct{}),
	}
	steward := claims.NewSteward(objects.NewStore(m.GetClient()), c.stewardConfig(ctx))
	c.steward = steward
	if err := prepare(ctx, m.GetCache()); err != nil {
		return err
	}
	queued := make(chan event.TypedGenericEvent[network.Ref], 1)
	queued <- event.TypedGenericEvent[network.Ref]{} // the first one, see watching
	ctl, err := controller.NewTyped("addresses", m, controller.TypedOptions[network.Ref]{
		Reconciler: c, MaxConcurrentReconciles: c.cfg.Workers,
	})
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	if err := ctl.Watch(source.TypedChannel(queued, handler.TypedFuncs[network.Ref, network.Ref]{GenericFunc: take})); err != nil {
		return fmt.Errorf("take what the sweep finds: %w", err)
	}
	for _, kind := range objects.Kinds() {
		if err := ctl.Watch(source.TypedKind(m.GetCache(), objects.Metadata(kind), c.onChange(kind, steward))); err != nil {
			return fmt.Errorf("watch %ss: %w", kind, err)
		}
	}
	if err := ctl.Watch(source.TypedKind(m.GetCache(), &v1.DanmEp{}, c.onRemoval())); err != nil {
		return fmt.Errorf("watch DanmEps: %w", err)
	}
	return m.Add(&sweeper{Controller: c, absences: absences{}, queue: func(ctx context.Context, ref network.Ref) {
		select {
		case queued <- event.TypedGenericEvent[network.Ref]{Object: ref}:
		case <-ctx.Done():
		}
	}})
}

// stewardConfig makes the Steward count as the daemons do.
func (c *Controller) stewardConfig(ctx context.Context) claims.StewardConfig {
	log := logr.FromContextOrDiscard(ctx)
	return claims.StewardConfig{
		Report:   func(err error) { log.Error(err, "Found a network's addresses damaged") },
		Reserved: func(n *network.Network) []netip.Addr { return c.reserved(ctx, n) },
	}
}

// prepare starts the caches that no controller watches.
func prepare(ctx context.Context, all cache.Cache) error {
	if err := all.IndexField(ctx, &v1.DanmEp{}, byNetwork, func(obj client.Object) []string {
		ep, ok := obj.(*v1.DanmEp)
		if !ok {
			return nil
		}
		return []string{objects.NetworkOf(ep).Ref.String()}
	}); err != nil {
		return fmt.Errorf("index DanmEps by network: %w", err)
	}
	for _, obj := range []client.Object{nodeMeta(), &v1.NodeNetwork{}, &corev1.Pod{}} {
		if _, err := all.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	return nil
}

// take queues what the sweep found.
func take(_ context.Context, e event.TypedGenericEvent[network.Ref], q workqueue.TypedRateLimitingInterface[network.Ref]) {
	q.Add(e.Object)
}

// onChange queues a network whose metadata moved: soon, since every claim moves it, or
// at once when somebody asks for something. The first sweep sees what is there.
func (c *Controller) onChange(kind string, w Witness) handler.TypedEventHandler[*metav1.PartialObjectMetadata, network.Ref] {
	type (
		object = *metav1.PartialObjectMetadata
		queue  = workqueue.TypedRateLimitingInterface[network.Ref]
	)
	key := func(o object) claims.Key { return claims.Key{Ref: objects.RefOf(kind, o), UID: string(o.UID)} }
	return handler.TypedFuncs[object, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[object], _ queue) {
			w.Look(key(e.Object), e.Object.ResourceVersion)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[object], q queue) {
			w.Look(key(e.ObjectNew), e.ObjectNew.ResourceVersion)
			ref := objects.RefOf(kind, e.ObjectNew)
			switch {
			case request(e.ObjectNew) != request(e.ObjectOld):
				q.Add(ref)
			case e.ObjectNew.DeletionTimestamp != nil: // nodes give back what they hold: all within a moment
				q.AddAfter(ref, min(c.cfg.Pace, deletionPace))
			default:
				q.AddAfter(ref, c.lookIn(ref))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[object], _ queue) {
			w.Gone(key(e.Object))
			c.looked.Delete(objects.RefOf(kind, e.Object))
		},
	}
}

// lookIn is how long to wait before the look at a network that has changed: shorter at
// one that was at rest.
func (c *Controller) lookIn(ref network.Ref) time.Duration {
	wait := min(c.cfg.Settle, c.cfg.Pace)
	if at, ok := c.looked.Load(ref); ok {
		if last, ok := at.(time.Time); ok {
			wait = max(wait, c.cfg.Pace-c.since(last))
		}
	}
	return wait
}

// deletionPace is the least time between two looks at a network in deletion.
const deletionPace = 250 * time.Millisecond

// onRemoval queues a network in deletion when one of its DanmEps is gone: the last one
// may have been what kept it.
func (c *Controller) onRemoval() handler.TypedEventHandler[*v1.DanmEp, network.Ref] {
	type queue = workqueue.TypedRateLimitingInterface[network.Ref]
	return handler.TypedFuncs[*v1.DanmEp, network.Ref]{
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*v1.DanmEp], q queue) {
			ref := objects.NetworkOf(e.Object).Ref
			meta := objects.Metadata(ref.Kind)
			if err := c.cached.Get(ctx, objects.Key(ref), meta); err == nil && meta.DeletionTimestamp != nil {
				q.AddAfter(ref, min(c.cfg.Pace, deletionPace))
			}
		},
	}
}

// request is what the annotations of a network ask for. What somebody else makes of the
// controller's own is put right at once.
func request(obj *metav1.PartialObjectMetadata) string {
	rebuild, asked := obj.Annotations[v1.RebuildAnnotation]
	return fmt.Sprint(asked, rebuild, "\n", obj.Annotations[v1.SkipAnnotation], "\n", obj.Annotations[v1.RecoveringAnnotation])
}
