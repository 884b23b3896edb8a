// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// Controller keeps the networks' condition Ready.
type Controller struct {
	cfg     Config
	store   Store
	metrics *metrics
	nodes   nodes

	mu sync.Mutex // guards what follows
	// begun says that all nodes' reports were read once.
	begun bool
	told  map[network.Ref]*told
}

// told is what a network's condition is, and since when it should be another.
type told struct {
	Seen
	// differs is when it was first found to differ, wrote when it was last written.
	differs, wrote time.Time
}

func newController(cfg Config, store Store) *Controller {
	cfg = cfg.withDefaults()
	return &Controller{
		cfg: cfg, store: store, metrics: newMetrics(cfg.Registry),
		nodes: nodes{reports: map[string]*report{}}, told: map[network.Ref]*told{},
	}
}

// workers is how many networks are worked at a time.
const workers = 2

// queue holds networks to look at.
type queue = workqueue.TypedRateLimitingInterface[network.Ref]

// Add makes a manager run a Controller while it leads. The manager's client must
// read from the API server, and its cache be made with Cached.
func Add(m manager.Manager, cfg Config) error {
	c := newController(cfg, &store{cached: m.GetCache(), direct: m.GetClient()})
	ctl, err := controller.NewTyped("networks", m, controller.TypedOptions[network.Ref]{Reconciler: c, MaxConcurrentReconciles: workers})
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	for _, kind := range objects.Kinds() {
		if err := ctl.Watch(source.TypedKind(m.GetCache(), objects.Metadata(kind), onNetwork(kind))); err != nil {
			return fmt.Errorf("watch %ss: %w", kind, err)
		}
	}
	if err := ctl.Watch(source.TypedKind(m.GetCache(), &v1.NodeNetwork{}, c.onNode())); err != nil {
		return fmt.Errorf("watch NodeNetworks: %w", err)
	}
	return nil
}

// onNetwork queues a network that came, went or was changed; claims are none.
func onNetwork(kind string) handler.TypedEventHandler[*metav1.PartialObjectMetadata, network.Ref] {
	type object = *metav1.PartialObjectMetadata
	return handler.TypedFuncs[object, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[object], q queue) {
			q.Add(objects.RefOf(kind, e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[object], q queue) {
			if objects.VersionOf(e.ObjectOld) != objects.VersionOf(e.ObjectNew) {
				q.Add(objects.RefOf(kind, e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[object], q queue) {
			q.Add(objects.RefOf(kind, e.Object))
		},
	}
}

// onNode queues the networks that a node says something new of.
func (c *Controller) onNode() handler.TypedEventHandler[*v1.NodeNetwork, network.Ref] {
	learn := func(nn *v1.NodeNetwork, q queue) {
		refs, joined := c.nodes.learn(nn)
		if joined {
			refs = append(refs, c.networks()...)
		}
		for _, ref := range refs {
			q.Add(ref)
		}
	}
	return handler.TypedFuncs[*v1.NodeNetwork, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1.NodeNetwork], q queue) { learn(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1.NodeNetwork], q queue) { learn(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1.NodeNetwork], q queue) {
			c.nodes.forget(e.Object.Name)
			for _, ref := range c.networks() {
				q.Add(ref)
			}
		},
	}
}

// networks are those that were looked at.
func (c *Controller) networks() []network.Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]network.Ref, 0, len(c.told))
	for ref := range c.told {
		all = append(all, ref)
	}
	return all
}

// Reconcile brings one network's condition up to what nodes say, now or when it is
// time. The queue gives a network to one worker at a time.
func (c *Controller) Reconcile(ctx context.Context, ref network.Ref) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.begin(ctx); err != nil {
		return reconcile.Result{}, err
	}
	t, err := c.look(ctx, ref)
	if err != nil || t == nil || !t.Linked {
		c.metrics.forget(ref)
		if err != nil || t == nil {
			return reconcile.Result{}, err
		}
		return c.retract(ctx, ref, t)
	}
	want := rollup(ref.String(), c.nodes.all())
	want.ObservedGeneration = t.Generation
	c.metrics.ready(ref, want.Status)
	if t.says(want) {
		t.differs = time.Time{}
		return reconcile.Result{}, nil
	}
	if wait := c.wait(t, want); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, c.tell(ctx, ref, t, want)
}

// begin learns what all nodes say before the first network is looked at: what some of
// them say would be a rash word on it.
func (c *Controller) begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return nil
	}
	all, err := c.store.Nodes(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		c.nodes.learn(&all[i])
	}
	c.begun = true
	return nil
}

// look returns what the network's condition is; it is read when the network is new
// or changed. Nil says that it does not exist.
func (c *Controller) look(ctx context.Context, ref network.Ref) (*told, error) {
	now, ok, err := c.store.Version(ctx, ref)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	t := c.told[ref]
	c.mu.Unlock()
	if ok && t != nil && t.UID == now.UID && t.Generation >= now.Generation {
		return t, nil
	}
	var seen Seen
	if ok {
		if seen, ok, err = c.store.Read(ctx, ref, now.ResourceVersion); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok {
		delete(c.told, ref)
		return nil, nil
	}
	if t == nil || t.UID != seen.UID {
		t = &told{}
		c.told[ref] = t
	}
	t.Seen = seen
	return t, nil
}

// retract takes back what this package said of a network that has no link any more, or
// is invalid: nobody would keep it true. What the nodes say of a wrong definition has
// other reasons, and stays.
func (c *Controller) retract(ctx context.Context, ref network.Ref, t *told) (reconcile.Result, error) {
	ours := []string{v1.ReasonLinksUp, v1.ReasonLinksNotUp, v1.ReasonNoNodes}
	if t.Ready == nil || !slices.Contains(ours, t.Ready.Reason) {
		return reconcile.Result{}, nil
	}
	now := c.cfg.Now()
	if wait := c.cfg.Pace - now.Sub(t.wrote); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := c.store.Write(ctx, ref, t.UID, nil); err != nil {
		return reconcile.Result{}, fmt.Errorf("take back condition of %s: %w", ref, err)
	}
	c.metrics.written.Inc()
	t.Ready, t.wrote, t.differs = nil, now, time.Time{}
	return reconcile.Result{}, nil
}

// says reports whether the condition is as wanted.
func (t *told) says(want metav1.Condition) bool {
	return t.Ready != nil && t.Ready.Status == want.Status && t.Ready.Reason == want.Reason &&
		t.Ready.Message == want.Message && t.Ready.ObservedGeneration == want.ObservedGeneration
}

// wait is how long it is too early to write. Good news of a network that was not
// changed waits for nothing: somebody may wait for it.
func (c *Controller) wait(t *told, want metav1.Condition) time.Duration {
	now := c.cfg.Now()
	if t.differs.IsZero() {
		t.differs = now
	}
	settle := c.cfg.Settle - now.Sub(t.differs)
	if want.Status == metav1.ConditionTrue && (t.Ready == nil || t.Ready.ObservedGeneration == want.ObservedGeneration) {
		settle = 0
	}
	return max(settle, c.cfg.Pace-now.Sub(t.wrote))
}

// tell writes the condition, and makes an Event of what changed for users.
func (c *Controller) tell(ctx context.Context, ref network.Ref, t *told, want metav1.Condition) error {
	now := c.cfg.Now()
	want.LastTransitionTime = metav1.NewTime(now)
	if t.Ready != nil && t.Ready.Status == want.Status {
		want.LastTransitionTime = t.Ready.LastTransitionTime
	}
	if err := c.store.Write(ctx, ref, t.UID, &want); err != nil {
		return fmt.Errorf("write condition of %s: %w", ref, err)
	}
	c.metrics.written.Inc()
	before := t.Ready
	t.Ready, t.wrote, t.differs = &want, now, time.Time{}
	obj := &corev1.ObjectReference{
		APIVersion: v1.SchemeGroupVersion().String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, UID: t.UID,
	}
	switch {
	case before != nil && before.Status == want.Status, before == nil && want.Status == metav1.ConditionTrue:
	case want.Status == metav1.ConditionTrue:
		c.cfg.Events.Event(obj, corev1.EventTypeNormal, want.Reason, want.Message)
	default:
		c.cfg.Events.Event(obj, corev1.EventTypeWarning, want.Reason, want.Message)
	}
	return nil
}
