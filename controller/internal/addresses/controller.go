// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Controller looks after the addresses of all networks, one network at a time.
type Controller struct {
	cfg     Config
	gc      GarbageCollector
	events  EventRecorder
	metrics *metrics
	// cached reads Nodes and networks as metadata, and DanmEps; it may be behind.
	cached client.Reader
	// direct reads from the API server, and writes.
	direct client.Client

	// watchesStarted is closed by the first request, that for no network: the queue is worked
	// once all watches are in place. The first sweep waits for it, since it sees what
	// they do not report, the networks that are there before.
	watchesStarted     chan struct{}
	watchesStartedOnce sync.Once

	goneNodes    goneIncarnations
	liveNodes    nodeListCache
	nicAddresses nicAddressCache
	// lastRebuilt is when a network's bitmap was last rebuilt on request.
	lastRebuilt sync.Map // claims.Key → time.Time
	// lastReconciled is when a network was last worked.
	lastReconciled sync.Map // network.Ref → time.Time
	// reportedConflicts are a network's conflicts of which its Pods have Events.
	reportedConflicts sync.Map // claims.Key → map[string]bool
}

// Add makes a manager run a Controller while it leads. The manager's client must
// read from the API server, and its cache be made with Cached.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	events, err := NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	c := &Controller{
		cfg: cfg.withDefaults(), metrics: newMetrics(cfg.Registry), events: events,
		cached: m.GetCache(), direct: m.GetClient(), watchesStarted: make(chan struct{}),
	}
	steward := claims.NewSteward(kube.NewStore(m.GetClient()), c.gcConfig(ctx))
	c.gc = steward
	if err := startInformers(ctx, m.GetCache()); err != nil {
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
	if err := ctl.Watch(source.TypedChannel(queued, handler.TypedFuncs[network.Ref, network.Ref]{GenericFunc: enqueue})); err != nil {
		return fmt.Errorf("take what the sweep finds: %w", err)
	}
	for _, kind := range kube.NetworkKinds() {
		if err := ctl.Watch(source.TypedKind(m.GetCache(), kube.PartialMetadata(kind), c.networkHandler(kind, steward))); err != nil {
			return fmt.Errorf("watch %ss: %w", kind, err)
		}
	}
	if err := ctl.Watch(source.TypedKind(m.GetCache(), &v1.DanmEp{}, c.danmEpHandler())); err != nil {
		return fmt.Errorf("watch DanmEps: %w", err)
	}
	return m.Add(&sweeper{Controller: c, goneSince: goneSince{}, enqueue: func(ctx context.Context, ref network.Ref) {
		select {
		case queued <- event.TypedGenericEvent[network.Ref]{Object: ref}:
		case <-ctx.Done():
		}
	}})
}

// gcConfig makes the Steward count as the daemons do.
func (c *Controller) gcConfig(ctx context.Context) claims.StewardConfig {
	log := logr.FromContextOrDiscard(ctx)
	return claims.StewardConfig{
		Report:   func(err error) { log.Error(err, "Found a network's addresses damaged") },
		Reserved: func(n *network.Network) []netip.Addr { return c.reservedAddresses(ctx, n) },
	}
}

// startInformers starts the caches that no controller watches.
func startInformers(ctx context.Context, all cache.Cache) error {
	if err := all.IndexField(ctx, &v1.DanmEp{}, byNetwork, func(obj client.Object) []string {
		ep, ok := obj.(*v1.DanmEp)
		if !ok {
			return nil
		}
		return []string{kube.NetworkKeyOf(ep).Ref.String()}
	}); err != nil {
		return fmt.Errorf("index DanmEps by network: %w", err)
	}
	for _, obj := range []client.Object{emptyNodeMetadata(), &v1.NodeNetwork{}, &corev1.Pod{}} {
		if _, err := all.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	return nil
}

// enqueue queues what the sweep found.
func enqueue(_ context.Context, e event.TypedGenericEvent[network.Ref], q workqueue.TypedRateLimitingInterface[network.Ref]) {
	q.Add(e.Object)
}

// networkHandler queues a network whose metadata moved: soon, since every claim moves it, or
// at once when somebody asks for something. The first sweep sees what is there.
func (c *Controller) networkHandler(kind string, w RollbackDetector) handler.TypedEventHandler[*metav1.PartialObjectMetadata, network.Ref] {
	type (
		object = *metav1.PartialObjectMetadata
		queue  = workqueue.TypedRateLimitingInterface[network.Ref]
	)
	key := func(o object) claims.Key { return claims.Key{Ref: kube.NetworkRefOf(kind, o), UID: string(o.UID)} }
	return handler.TypedFuncs[object, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[object], _ queue) {
			w.Look(key(e.Object), e.Object.ResourceVersion)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[object], q queue) {
			w.Look(key(e.ObjectNew), e.ObjectNew.ResourceVersion)
			ref := kube.NetworkRefOf(kind, e.ObjectNew)
			switch {
			case requestAnnotations(e.ObjectNew) != requestAnnotations(e.ObjectOld):
				q.Add(ref)
			case e.ObjectNew.DeletionTimestamp != nil: // nodes give back what they hold: all within a moment
				q.AddAfter(ref, min(c.cfg.MinInterval, deletionInterval))
			default:
				q.AddAfter(ref, c.reconcileDelay(ref))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[object], _ queue) {
			w.Gone(key(e.Object))
			c.lastReconciled.Delete(kube.NetworkRefOf(kind, e.Object))
		},
	}
}

// requestAnnotations is what the annotations of a network ask for. What somebody else makes of the
// controller's own is put right at once.
func requestAnnotations(obj *metav1.PartialObjectMetadata) string {
	rebuild, asked := obj.Annotations[v1.RebuildAnnotation]
	return fmt.Sprint(asked, rebuild, "\n", obj.Annotations[v1.SkipAnnotation], "\n", obj.Annotations[v1.RecoveringAnnotation])
}

// reconcileDelay is how long to wait before the look at a network that has changed: shorter at
// one that was at rest.
func (c *Controller) reconcileDelay(ref network.Ref) time.Duration {
	wait := min(c.cfg.ChangeDelay, c.cfg.MinInterval)
	if at, ok := c.lastReconciled.Load(ref); ok {
		if last, ok := at.(time.Time); ok {
			wait = max(wait, c.cfg.MinInterval-c.since(last))
		}
	}
	return wait
}

// deletionInterval is the least time between two looks at a network in deletion.
const deletionInterval = 250 * time.Millisecond

// danmEpHandler queues a network in deletion when one of its DanmEps is gone: the last one
// may have been what kept it.
func (c *Controller) danmEpHandler() handler.TypedEventHandler[*v1.DanmEp, network.Ref] {
	type queue = workqueue.TypedRateLimitingInterface[network.Ref]
	return handler.TypedFuncs[*v1.DanmEp, network.Ref]{
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*v1.DanmEp], q queue) {
			ref := kube.NetworkKeyOf(e.Object).Ref
			meta := kube.PartialMetadata(ref.Kind)
			if err := c.cached.Get(ctx, kube.ObjectKey(ref), meta); err == nil && meta.DeletionTimestamp != nil {
				q.AddAfter(ref, min(c.cfg.MinInterval, deletionInterval))
			}
		},
	}
}

// Reconcile does all that is due for one network. Its error brings the network
// back after a while.
func (c *Controller) Reconcile(ctx context.Context, ref network.Ref) (reconcile.Result, error) {
	if ref == (network.Ref{}) {
		c.watchesStartedOnce.Do(func() { close(c.watchesStarted) })
		return reconcile.Result{}, nil
	}
	c.lastReconciled.Store(ref, c.cfg.Now())
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("network", ref.String()))
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	if err := c.direct.Get(ctx, kube.ObjectKey(ref), obj, &client.GetOptions{Raw: fromWatchCache()}); apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get %s: %w", ref, err)
	}
	return c.reconcileNetwork(ctx, newNetworkSnapshot(ref, obj))
}

// fromWatchCache makes a read that the API server answers out of memory.
func fromWatchCache() *metav1.GetOptions { return &metav1.GetOptions{ResourceVersion: "0"} }

// watchCacheLag is how long the watch cache may be behind a write.
const watchCacheLag = 50 * time.Millisecond

// reconcileNetwork does what a reading of a network asks for. One duty's failure keeps none of
// the others from being done.
func (c *Controller) reconcileNetwork(ctx context.Context, r networkSnapshot) (reconcile.Result, error) {
	waiting, err := c.reconcileRecovery(ctx, r)
	if waiting.stale {
		return reconcile.Result{RequeueAfter: watchCacheLag}, nil
	}
	again, rebuildErr := c.rebuildOnRequest(ctx, r)
	evictErr := c.freeGoneNodes(ctx, r)
	conflicts, auditErr := c.reconcileBitmap(ctx, r)
	errs := []error{err, rebuildErr, evictErr, auditErr, c.removeStaleSkip(ctx, r), c.removeFinalizer(ctx, r)}
	since := waiting.since
	if err == nil && len(waiting.awaited) == 0 {
		since = "" // it is over
	}
	errs = append(errs, c.setRecoveringAnnotation(ctx, r, since))
	if err == nil { // else nobody can tell who is awaited
		errs = append(errs, c.updateConditions(ctx, r, waiting, conflicts))
	}
	if r.Recovering() && (again == 0 || again > c.cfg.RecoveryInterval) {
		again = c.cfg.RecoveryInterval
	}
	if r.Deleting && r.Protected && again == 0 {
		again = c.cfg.MinInterval // caches may have been behind what brought it here
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// freeGoneNodes removes the entries of departed lives from a network.
func (c *Controller) freeGoneNodes(ctx context.Context, r networkSnapshot) error {
	over, err := c.confirmGone(ctx, c.goneNodes.intersect(r.incarnations()))
	if err != nil || len(over) == 0 {
		return err
	}
	uids := map[string]string{}
	for _, l := range over {
		uids[l.name] = l.uid
	}
	freed, err := c.gc.Evict(ctx, r.key(), uids)
	if err != nil {
		return fmt.Errorf("free what nodes that are gone held of %s: %w", r.Ref, err)
	}
	c.metrics.freedAddresses.Add(float64(freed))
	logr.FromContextOrDiscard(ctx).Info("Freed what nodes that are gone held", "nodes", uids, "freed", freed)
	return nil
}

// confirmGone returns those of lives that the API server, asked now, says are over: an
// older state of it may have been restored since, with these Nodes in it.
func (c *Controller) confirmGone(ctx context.Context, lives []incarnation) ([]incarnation, error) {
	var over []incarnation
	for _, l := range lives {
		node := emptyNodeMetadata()
		err := c.direct.Get(ctx, client.ObjectKey{Name: l.name}, node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get Node %s: %w", l.name, err)
		}
		if err != nil || string(node.UID) != l.uid {
			over = append(over, l)
		}
	}
	return over, nil
}

// removeFinalizer lets a network go that is in deletion, when caches say that nobody uses it.
// Nodes give back what they hold, and each write of theirs brings the network here again;
// so does the end of its last DanmEp (onRemoval).
func (c *Controller) removeFinalizer(ctx context.Context, r networkSnapshot) error {
	if !r.Deleting || !r.Protected || len(r.incarnations()) > 0 {
		return nil
	}
	eps, err := c.networkEndpoints(ctx, r.Ref)
	if err != nil || slices.ContainsFunc(eps, func(e claims.Endpoint) bool { return e.NetworkUID == "" || e.NetworkUID == r.UID }) {
		return err
	}
	done, err := c.gc.EndDeletion(ctx, r.key())
	if err != nil {
		return fmt.Errorf("end the deletion of %s: %w", r.Ref, err)
	}
	if done {
		logr.FromContextOrDiscard(ctx).Info("Nobody uses the network any more: its deletion ends")
	}
	return nil
}

// updateConditions brings the network's conditions up to what was read, and reports what got
// better or worse.
func (c *Controller) updateConditions(ctx context.Context, r networkSnapshot, w recoveryProgress, found conflictFindings) error {
	if r.Deleting {
		return nil
	}
	before := objectConditions(r)
	after := desiredConditions(before, r.Generation, poolUsages(r.Object, c.reservedAddresses(ctx, r.Network)), w, found)
	if conditionsEqual(before, after) {
		return nil
	}
	setTransitionTimes(before, after, metav1.NewTime(c.cfg.Now()))
	if err := c.applyConditions(ctx, r, after); err != nil {
		return err
	}
	c.recordEvents(r, before, after)
	return nil
}

// fieldManager owns our conditions for server-side apply, and no other field.
const fieldManager = "patchbay-controller-addresses"

// applyConditions makes conditions the ones of ours that the network has. It names the UID
// and no resourceVersion: it fails on another network of the same name, and never
// because somebody claims addresses. A condition of ours that is not in the list is
// removed, as this manager does not want it any more.
func (c *Controller) applyConditions(ctx context.Context, r networkSnapshot, conditions []metav1.Condition) error {
	all := make([]any, len(conditions))
	for i := range conditions {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i])
		if err != nil {
			return fmt.Errorf("encode condition of %s: %w", r.Ref, err)
		}
		all[i] = u
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": all}}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(r.Ref.Kind))
	u.SetNamespace(r.Ref.Namespace)
	u.SetName(r.Ref.Name)
	u.SetUID(r.obj.GetUID())
	err := c.direct.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write conditions of %s: %w", r.Ref, err)
	}
	return nil
}

// recordEvents makes an Event of what changed for the users of a network. That there
// are addresses from the start is no news.
func (c *Controller) recordEvents(r networkSnapshot, before, after []metav1.Condition) {
	for i := range after {
		now := &after[i]
		old := meta.FindStatusCondition(before, now.Type)
		switch {
		case old != nil && old.Reason == now.Reason, old == nil && now.Reason == v1.ReasonAddressesSufficient:
		case now.Reason == v1.ReasonAddressesSufficient:
			c.events.Event(r.obj, corev1.EventTypeNormal, now.Reason, now.Message)
		default:
			c.events.Event(r.obj, corev1.EventTypeWarning, now.Reason, now.Message)
		}
	}
}

// cachedNodes returns the cached Nodes.
func (c *Controller) cachedNodes(ctx context.Context) (nodesByName, error) {
	return listNodes(ctx, c.cached)
}

// cachedEndpoints returns the cached DanmEps; nobody may change them.
func (c *Controller) cachedEndpoints(ctx context.Context, opts ...client.ListOption) ([]v1.DanmEp, error) {
	list := &v1.DanmEpList{}
	if err := c.cached.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list cached DanmEps: %w", err)
	}
	return list.Items, nil
}

// networkEndpoints returns the cached DanmEps of a network.
func (c *Controller) networkEndpoints(ctx context.Context, ref network.Ref) ([]claims.Endpoint, error) {
	eps, err := c.cachedEndpoints(ctx, client.MatchingFields{byNetwork: ref.String()})
	if err != nil {
		return nil, err
	}
	all := make([]claims.Endpoint, len(eps))
	for i := range eps {
		if all[i], err = kube.EndpointOf(&eps[i]); err != nil {
			return nil, fmt.Errorf("read DanmEps of %s: %w", ref, err)
		}
	}
	return all, nil
}

// reservedAddresses are the nodes' own addresses in a network, which no Pod may get.
func (c *Controller) reservedAddresses(ctx context.Context, net *network.Network) []netip.Addr {
	if net == nil {
		return nil
	}
	return kube.ReservedNodeAddresses(net, c.nicAddresses.get(ctx, c.cached, c.cfg.Now()))
}

// since reports how long ago a time was, a long time for the zero time.
func (c *Controller) since(t time.Time) time.Duration { return c.cfg.Now().Sub(t) }
