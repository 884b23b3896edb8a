// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/patchbay-cni/patchbay/ipam/gc"
)

// Controller reconciles the addresses of all networks, one network at a time.
type Controller struct {
	cfg     Config
	cluster *clusterReader
	// client writes to the API server.
	client   client.Client
	gc       GarbageCollector
	audit    *bitmapAudit
	recovery *bitmapRecovery
	events   EventRecorder
	metrics  *Metrics

	// watchesStarted is closed by the first request, which is for no network: the queue is worked
	// once all watches have started. The first sweep waits for that, because only a sweep sees
	// the networks that were there before.
	watchesStarted     chan struct{}
	watchesStartedOnce sync.Once

	// goneNodes are the Nodes that the sweeper found gone for the grace period.
	goneNodes goneIncarnations
	// lastReconciled is when a network was last reconciled.
	lastReconciled sync.Map // network.Ref → time.Time
	// poolsChanged is when status.pools of a network was first seen to be out of date.
	poolsChanged sync.Map // network.Key → time.Time
}

// newController wires a Controller. The client reads from the API server.
func newController(cfg Config, cluster *clusterReader, c client.Client, gc GarbageCollector, events EventRecorder) *Controller {
	cfg = cfg.withDefaults()
	return &Controller{
		cfg: cfg, cluster: cluster, client: c, gc: gc, events: events, metrics: cfg.Metrics, watchesStarted: make(chan struct{}),
		audit:    &bitmapAudit{cluster: cluster, gc: gc, events: events, metrics: cfg.Metrics, now: cfg.Now, needsRepair: cfg.NeedsRepair},
		recovery: &bitmapRecovery{cluster: cluster, gc: gc, events: events, now: cfg.Now},
	}
}

// newSweeper returns the sweeper that queues networks for c.
func (c *Controller) newSweeper(enqueue func(context.Context, network.Ref)) *sweeper {
	return &sweeper{
		cluster: c.cluster, client: c.client, audit: c.audit, metrics: c.metrics, now: c.cfg.Now,
		danmEps: &danmEpGC{
			cluster: c.cluster, client: c.client, events: c.events, metrics: c.metrics, now: c.cfg.Now,
			namespace: c.cfg.Namespace, stuckTimeout: c.cfg.StuckDeletionTimeout,
		},
		interval: c.cfg.SweepInterval, nodeGracePeriod: c.cfg.NodeGracePeriod, watchesStarted: c.watchesStarted,
		goneSince: goneSince{}, goneNodes: &c.goneNodes, enqueue: enqueue,
	}
}

// Add makes a manager run a Controller while it leads. The manager's client must read from the API
// server, and its cache must be configured with CacheByObject.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	events, err := NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	cluster := &clusterReader{cached: m.GetCache(), direct: m.GetClient(), now: cfg.withDefaults().Now}
	collector := gc.NewCollector(kube.NewStore(m.GetClient()), gcConfig(ctx, cluster))
	c := newController(cfg, cluster, m.GetClient(), collector, events)
	if err := startInformers(ctx, m.GetCache()); err != nil {
		return err
	}
	queued := make(chan event.TypedGenericEvent[network.Ref], 1)
	queued <- event.TypedGenericEvent[network.Ref]{} // the first request, see watchesStarted
	ctl, err := controller.NewTyped("addresses", m, controller.TypedOptions[network.Ref]{
		Reconciler: c, MaxConcurrentReconciles: c.cfg.Workers,
	})
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	if err := ctl.Watch(source.TypedChannel(queued, handler.TypedFuncs[network.Ref, network.Ref]{GenericFunc: enqueue})); err != nil {
		return fmt.Errorf("receive networks from the sweeper: %w", err)
	}
	for _, kind := range kube.NetworkKinds() {
		if err := ctl.Watch(source.TypedKind(m.GetCache(), kube.PartialMetadata(kind), c.networkHandler(kind, collector))); err != nil {
			return fmt.Errorf("watch %ss: %w", kind, err)
		}
	}
	if err := ctl.Watch(source.TypedKind(m.GetCache(), &v1.DanmEp{}, c.danmEpHandler())); err != nil {
		return fmt.Errorf("watch DanmEps: %w", err)
	}
	return m.Add(c.newSweeper(func(ctx context.Context, ref network.Ref) {
		select {
		case queued <- event.TypedGenericEvent[network.Ref]{Object: ref}:
		case <-ctx.Done():
		}
	}))
}

// gcConfig makes the garbage collector count reserved addresses as the node daemons do.
func gcConfig(ctx context.Context, cluster *clusterReader) gc.Config {
	log := logr.FromContextOrDiscard(ctx)
	return gc.Config{
		Report:   func(err error) { log.Error(err, "Found damaged addresses of a network") },
		Reserved: func(n *network.Network) []netip.Addr { return cluster.reservedAddresses(ctx, n) },
	}
}

// startInformers indexes DanmEps by network, and starts the informers that no controller watches.
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

// enqueue queues a network that the sweeper found.
func enqueue(_ context.Context, e event.TypedGenericEvent[network.Ref], q workqueue.TypedRateLimitingInterface[network.Ref]) {
	q.Add(e.Object)
}

// networkHandler queues a network whose metadata changed: at once when an annotation requests
// something or was created, else after a delay, because every claim changes it. The networks that
// were there before are the sweeper's.
func (c *Controller) networkHandler(kind string, detector RollbackDetector) handler.TypedEventHandler[*metav1.PartialObjectMetadata, network.Ref] {
	type (
		object = *metav1.PartialObjectMetadata
		queue  = workqueue.TypedRateLimitingInterface[network.Ref]
	)
	key := func(o object) network.Key { return network.Key{Ref: kube.NetworkRefOf(kind, o), UID: string(o.UID)} }
	return handler.TypedFuncs[object, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[object], q queue) {
			detector.ObserveVersion(key(e.Object), e.Object.ResourceVersion)
			if !e.IsInInitialList {
				q.Add(kube.NetworkRefOf(kind, e.Object))
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[object], q queue) {
			detector.ObserveVersion(key(e.ObjectNew), e.ObjectNew.ResourceVersion)
			ref := kube.NetworkRefOf(kind, e.ObjectNew)
			switch {
			case requestAnnotations(e.ObjectNew) != requestAnnotations(e.ObjectOld):
				q.Add(ref)
			case e.ObjectNew.DeletionTimestamp != nil: // the nodes release their addresses at about the same time
				q.AddAfter(ref, min(c.cfg.MinInterval, deletionInterval))
			default:
				q.AddAfter(ref, c.reconcileDelay(ref))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[object], _ queue) {
			detector.NetworkDeleted(key(e.Object))
			c.lastReconciled.Delete(kube.NetworkRefOf(kind, e.Object))
			c.poolsChanged.Delete(key(e.Object))
		},
	}
}

// requestAnnotations returns the annotations that make a network urgent: the requests of people,
// and the controller's own, which it restores at once when someone else changes it.
func requestAnnotations(obj *metav1.PartialObjectMetadata) string {
	rebuild, asked := obj.Annotations[v1.RebuildAnnotation]
	return fmt.Sprint(asked, rebuild, "\n", obj.Annotations[v1.SkipAnnotation], "\n", obj.Annotations[v1.RecoveringAnnotation])
}

// reconcileDelay is how long to wait before a changed network is reconciled: ChangeDelay, or until
// MinInterval has passed since the last time.
func (c *Controller) reconcileDelay(ref network.Ref) time.Duration {
	wait := min(c.cfg.ChangeDelay, c.cfg.MinInterval)
	if at, ok := c.lastReconciled.Load(ref); ok {
		if last, ok := at.(time.Time); ok {
			wait = max(wait, c.cfg.MinInterval-c.cfg.Now().Sub(last))
		}
	}
	return wait
}

// deletionInterval is the least time between two reconciliations of a network in deletion.
const deletionInterval = 250 * time.Millisecond

// danmEpHandler queues the network of a DanmEp that comes or goes, because its numbers change. It
// queues a network in deletion soon: that may have been the last DanmEp that blocked it. A network that
// does not exist is queued when it is created: tenants write DanmEps with any name.
func (c *Controller) danmEpHandler() handler.TypedEventHandler[*v1.DanmEp, network.Ref] {
	type queue = workqueue.TypedRateLimitingInterface[network.Ref]
	queueNetwork := func(ctx context.Context, ep *v1.DanmEp, q queue) {
		ref := kube.NetworkKeyOf(ep).Ref
		meta := kube.PartialMetadata(ref.Kind)
		switch err := c.cluster.cached.Get(ctx, kube.ObjectKey(ref), meta); {
		case err != nil: // there is no such network, or no such kind
		case meta.DeletionTimestamp != nil:
			q.AddAfter(ref, min(c.cfg.MinInterval, deletionInterval))
		default:
			q.AddAfter(ref, c.cfg.PoolInterval)
		}
	}
	return handler.TypedFuncs[*v1.DanmEp, network.Ref]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*v1.DanmEp], q queue) {
			if !e.IsInInitialList {
				queueNetwork(ctx, e.Object, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*v1.DanmEp], q queue) {
			queueNetwork(ctx, e.Object, q)
		},
	}
}

// Reconcile does everything that is due for one network. An error makes it run again after a
// delay that grows.
func (c *Controller) Reconcile(ctx context.Context, ref network.Ref) (reconcile.Result, error) {
	if ref == (network.Ref{}) {
		c.watchesStartedOnce.Do(func() { close(c.watchesStarted) })
		return reconcile.Result{}, nil
	}
	c.lastReconciled.Store(ref, c.cfg.Now())
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("network", ref.String()))
	switch r, err := c.cluster.getNetwork(ctx, ref); {
	case apierrors.IsNotFound(err):
		c.lastReconciled.Delete(ref)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get %s: %w", ref, err)
	default:
		return c.reconcileNetwork(ctx, r)
	}
}

// watchCacheLag is how long the watch cache may be behind a write.
const watchCacheLag = 50 * time.Millisecond

// reconcileNetwork does everything that is due for a network as it was read. The failure of one
// step does not keep the others from running.
func (c *Controller) reconcileNetwork(ctx context.Context, r networkSnapshot) (reconcile.Result, error) {
	progress, recoveryErr := c.recovery.reconcile(ctx, r)
	if progress.stale {
		return reconcile.Result{RequeueAfter: watchCacheLag}, nil
	}
	again, rebuildErr := c.rebuildOnRequest(ctx, r)
	goneErr := c.freeGoneNodes(ctx, r)
	conflicts, auditErr := c.audit.reconcile(ctx, r)
	errs := []error{
		recoveryErr, rebuildErr, goneErr, auditErr, c.removeUnusedSkip(ctx, r), c.addFinalizer(ctx, r), c.removeFinalizer(ctx, r),
		c.setRecoveringAnnotation(ctx, r, progress.annotationValue(recoveryErr)),
	}
	if recoveryErr == nil { // else the awaited nodes are unknown
		retry, err := c.updateStatus(ctx, r, progress, conflicts)
		if errs = append(errs, err); retry > 0 && (again == 0 || again > retry) {
			again = retry
		}
	}
	if r.Recovering() && (again == 0 || again > c.cfg.RecoveryInterval) {
		again = c.cfg.RecoveryInterval
	}
	if r.Deleting && r.Protected && again == 0 {
		again = c.cfg.MinInterval // the caches may have been behind the event that queued it
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// rebuildOnRequest rebuilds the bitmap if an annotation requests it, and then removes the
// annotation. The duration is when to try again, zero for no time.
func (c *Controller) rebuildOnRequest(ctx context.Context, r networkSnapshot) (time.Duration, error) {
	retry, done, err := c.audit.rebuildOnRequest(ctx, r)
	if err != nil || !done {
		return retry, err
	}
	value, _ := r.rebuildRequest()
	return 0, c.removeAnnotation(ctx, r, v1.RebuildAnnotation, value)
}

// freeGoneNodes frees the addresses that Nodes which are gone held in a network.
func (c *Controller) freeGoneNodes(ctx context.Context, r networkSnapshot) error {
	gone, err := c.cluster.confirmGone(ctx, c.goneNodes.intersect(r.incarnations()))
	if err != nil || len(gone) == 0 {
		return err
	}
	uids := map[string]string{}
	for _, l := range gone {
		uids[l.name] = l.uid
	}
	freed, err := c.gc.FreeGoneNodes(ctx, r.key(), uids)
	if err != nil {
		return fmt.Errorf("free the addresses of %s that deleted Nodes held: %w", r.Ref, err)
	}
	c.metrics.freedAddresses.Add(float64(freed))
	logr.FromContextOrDiscard(ctx).Info("Freed the addresses of deleted Nodes", "nodes", uids, "freed", freed)
	return nil
}

// removeUnusedSkip removes the annotation danm.io/ipam-skip when there is no recovery, so that it
// does not apply to the next one.
func (c *Controller) removeUnusedSkip(ctx context.Context, r networkSnapshot) error {
	value, ok := r.skipRequest()
	if !ok || r.Recovering() {
		return nil
	}
	return c.removeAnnotation(ctx, r, v1.SkipAnnotation, value)
}

// addFinalizer adds the finalizer to a network that a DanmEp names and that no node has used, because
// DANM wrote the DanmEp: the network must not go before the Pods.
func (c *Controller) addFinalizer(ctx context.Context, r networkSnapshot) error {
	if missing, err := c.cluster.missesFinalizer(ctx, r); err != nil || !missing {
		return err
	}
	if err := c.gc.AddFinalizer(ctx, r.key()); err != nil {
		return fmt.Errorf("add the finalizer to %s: %w", r.Ref, err)
	}
	return nil
}

// removeFinalizer removes the finalizer of a network in deletion when the caches show no user of it.
// Each release of a node changes the network and queues it again, and so does the deletion of
// its last DanmEp (danmEpHandler).
func (c *Controller) removeFinalizer(ctx context.Context, r networkSnapshot) error {
	if !r.Deleting || !r.Protected || len(r.incarnations()) > 0 {
		return nil
	}
	if named, err := c.cluster.isNamed(ctx, r); err != nil || named {
		return err
	}
	done, err := c.gc.RemoveFinalizer(ctx, r.key())
	if err != nil {
		return fmt.Errorf("remove the finalizer of %s: %w", r.Ref, err)
	}
	if done {
		logr.FromContextOrDiscard(ctx).Info("Removed the finalizer of an unused network in deletion")
	}
	return nil
}

// removeAnnotation removes an annotation, unless someone has changed its value: that is a new
// request.
func (c *Controller) removeAnnotation(ctx context.Context, r networkSnapshot, name, value string) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": r.UID},
		{"op": "test", "path": path, "value": value},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", r.Ref, err)
	}
	err = c.client.Patch(ctx, r.metadata(), client.RawPatch(types.JSONPatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) { // Invalid: a test failed
		return fmt.Errorf("remove annotation %s of %s: %w", name, r.Ref, err)
	}
	return nil
}

// setRecoveringAnnotation sets the annotation danm.io/recovering, or removes it when since is empty.
// Nodes that do not use the network watch only its metadata. They report once for each value, so
// also when a recovery starts again while they have not seen the end of the last one.
func (c *Controller) setRecoveringAnnotation(ctx context.Context, r networkSnapshot, since string) error {
	if r.obj.GetAnnotations()[v1.RecoveringAnnotation] == since {
		return nil
	}
	var value any // null removes it
	if since != "" {
		value = since
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": r.UID, "annotations": map[string]any{v1.RecoveringAnnotation: value},
	}})
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", r.Ref, err)
	}
	if err := c.client.Patch(ctx, r.metadata(), client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("set annotation %s of %s: %w", v1.RecoveringAnnotation, r.Ref, err)
	}
	return nil
}

// fieldManager owns the conditions of this package and status.pools, and no other field.
const fieldManager = "patchbay-controller-addresses"

// updateStatus writes the network's conditions and pools if they differ from what was read, and
// makes Events of conditions that got better or worse. Each write makes concurrent claims of the
// network conflict, so numbers alone wait: many changes become one write, and a Pod that comes and
// goes causes none. The duration is when to try again, zero for no time.
func (c *Controller) updateStatus(ctx context.Context, r networkSnapshot, p recoveryProgress, found conflictFindings) (time.Duration, error) {
	if r.Deleting {
		return 0, nil
	}
	pools, err := c.cluster.countPools(ctx, r)
	if err != nil {
		return 0, err
	}
	before := objectConditions(r)
	after := desiredConditions(before, r.Generation, pools, newGrowthAdvice(r.Object), p, found)
	if conditionsEqual(before, after) && observedGeneration(r) == r.Generation {
		if slices.Equal(objectPools(r), pools) {
			c.poolsChanged.Delete(r.key())
			return 0, nil
		}
		if wait := c.poolWait(r); wait > 0 {
			return wait, nil
		}
	}
	setTransitionTimes(before, after, metav1.NewTime(c.cfg.Now()))
	err = kube.ApplyStatus(ctx, c.client, r.Ref, r.obj.GetUID(), fieldManager, v1.NetworkStatus{Conditions: after, Pools: pools, ObservedGeneration: r.Generation})
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	c.poolsChanged.Delete(r.key())
	c.recordEvents(r, before, after)
	return 0, nil
}

// poolIntervalPerEntry is added to PoolInterval for each node that has an entry in the status: a write
// costs more, and makes more claims conflict.
const poolIntervalPerEntry = 20 * time.Millisecond

// poolWait is how much longer numbers alone are not written.
func (c *Controller) poolWait(r networkSnapshot) time.Duration {
	now := c.cfg.Now()
	at, _ := c.poolsChanged.LoadOrStore(r.key(), now)
	since, ok := at.(time.Time)
	if !ok {
		return 0
	}
	return c.cfg.PoolInterval + time.Duration(len(r.incarnations()))*poolIntervalPerEntry - now.Sub(since)
}

// recordEvents makes an Event of each condition whose reason changed. It makes none when the first
// reading of a pool finds enough addresses.
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
