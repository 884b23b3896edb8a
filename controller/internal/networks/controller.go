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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Controller keeps the networks' condition Ready.
type Controller struct {
	cfg     Config
	store   Store
	metrics *metrics
	reports nodeReports

	mu sync.Mutex // guards what follows
	// reportsRead says that all nodes' reports were read once.
	reportsRead bool
	states      map[network.Ref]*networkState
}

// networkState is what a network's condition is, and since when it should be another.
type networkState struct {
	Snapshot
	// differsSince is when it was first found to differ, wrote when it was last written.
	differsSince, lastWritten time.Time
}

func newController(cfg Config, store Store) *Controller {
	cfg = cfg.withDefaults()
	return &Controller{
		cfg: cfg, store: store, metrics: newMetrics(cfg.Registry),
		reports: nodeReports{byNode: map[string]*nodeReport{}}, states: map[network.Ref]*networkState{},
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
	for _, kind := range kube.NetworkKinds() {
		if err := ctl.Watch(source.TypedKind(m.GetCache(), kube.PartialMetadata(kind), networkHandler(kind))); err != nil {
			return fmt.Errorf("watch %ss: %w", kind, err)
		}
	}
	if err := ctl.Watch(source.TypedKind(m.GetCache(), &v1.NodeNetwork{}, c.nodeNetworkHandler())); err != nil {
		return fmt.Errorf("watch NodeNetworks: %w", err)
	}
	return nil
}

// networkHandler queues a network that came, went or was changed; claims are none.
func networkHandler(kind string) handler.TypedEventHandler[*metav1.PartialObjectMetadata, network.Ref] {
	type object = *metav1.PartialObjectMetadata
	return handler.TypedFuncs[object, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[object], q queue) {
			q.Add(kube.NetworkRefOf(kind, e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[object], q queue) {
			if kube.SpecVersionOf(e.ObjectOld) != kube.SpecVersionOf(e.ObjectNew) {
				q.Add(kube.NetworkRefOf(kind, e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[object], q queue) {
			q.Add(kube.NetworkRefOf(kind, e.Object))
		},
	}
}

// nodeNetworkHandler queues the networks that a node says something new of.
func (c *Controller) nodeNetworkHandler() handler.TypedEventHandler[*v1.NodeNetwork, network.Ref] {
	learn := func(nn *v1.NodeNetwork, q queue) {
		refs, joined := c.reports.update(nn)
		if joined {
			refs = append(refs, c.knownNetworks()...)
		}
		for _, ref := range refs {
			q.Add(ref)
		}
	}
	return handler.TypedFuncs[*v1.NodeNetwork, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1.NodeNetwork], q queue) { learn(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1.NodeNetwork], q queue) { learn(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1.NodeNetwork], q queue) {
			c.reports.remove(e.Object.Name)
			for _, ref := range c.knownNetworks() {
				q.Add(ref)
			}
		},
	}
}

// knownNetworks are those that were looked at.
func (c *Controller) knownNetworks() []network.Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]network.Ref, 0, len(c.states))
	for ref := range c.states {
		all = append(all, ref)
	}
	return all
}

// Reconcile brings one network's condition up to what nodes say, now or when it is
// time. The queue gives a network to one worker at a time.
func (c *Controller) Reconcile(ctx context.Context, ref network.Ref) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.readReports(ctx); err != nil {
		return reconcile.Result{}, err
	}
	t, err := c.readState(ctx, ref)
	if err != nil || t == nil || !t.Linked {
		c.metrics.forget(ref)
		if err != nil || t == nil {
			return reconcile.Result{}, err
		}
		return c.removeCondition(ctx, ref, t)
	}
	want := readyCondition(ref.String(), c.reports.all())
	want.ObservedGeneration = t.Generation
	c.metrics.setReady(ref, want.Status)
	if t.matches(want) {
		t.differsSince = time.Time{}
		return reconcile.Result{}, nil
	}
	if wait := c.writeDelay(t, want); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, c.writeCondition(ctx, ref, t, want)
}

// readReports learns what all nodes say before the first network is looked at: what some of
// them say would be a rash word on it.
func (c *Controller) readReports(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reportsRead {
		return nil
	}
	all, err := c.store.Nodes(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		c.reports.update(&all[i])
	}
	c.reportsRead = true
	return nil
}

// readState returns what the network's condition is; it is read when the network is new
// or changed. Nil says that it does not exist.
func (c *Controller) readState(ctx context.Context, ref network.Ref) (*networkState, error) {
	now, ok, err := c.store.Version(ctx, ref)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	t := c.states[ref]
	c.mu.Unlock()
	if ok && t != nil && t.UID == now.UID && t.Generation >= now.Generation {
		return t, nil
	}
	var seen Snapshot
	if ok {
		if seen, ok, err = c.store.Read(ctx, ref, now.ResourceVersion); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok {
		delete(c.states, ref)
		return nil, nil
	}
	if t == nil || t.UID != seen.UID {
		t = &networkState{}
		c.states[ref] = t
	}
	t.Snapshot = seen
	return t, nil
}

// removeCondition takes back what this package said of a network that has no link any more, or
// is invalid: nobody would keep it true. What the nodes say of a wrong definition has
// other reasons, and stays.
func (c *Controller) removeCondition(ctx context.Context, ref network.Ref, t *networkState) (reconcile.Result, error) {
	ours := []string{v1.ReasonLinksUp, v1.ReasonLinksNotUp, v1.ReasonNoNodeReports}
	if t.Ready == nil || !slices.Contains(ours, t.Ready.Reason) {
		return reconcile.Result{}, nil
	}
	now := c.cfg.Now()
	if wait := c.cfg.MinWriteInterval - now.Sub(t.lastWritten); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := c.store.Write(ctx, ref, t.UID, nil); err != nil {
		return reconcile.Result{}, fmt.Errorf("take back condition of %s: %w", ref, err)
	}
	c.metrics.written.Inc()
	t.Ready, t.lastWritten, t.differsSince = nil, now, time.Time{}
	return reconcile.Result{}, nil
}

// matches reports whether the condition is as wanted.
func (t *networkState) matches(want metav1.Condition) bool {
	return t.Ready != nil && t.Ready.Status == want.Status && t.Ready.Reason == want.Reason &&
		t.Ready.Message == want.Message && t.Ready.ObservedGeneration == want.ObservedGeneration
}

// writeDelay is how long it is too early to write. Good news of a network that was not
// changed waits for nothing: somebody may wait for it.
func (c *Controller) writeDelay(t *networkState, want metav1.Condition) time.Duration {
	now := c.cfg.Now()
	if t.differsSince.IsZero() {
		t.differsSince = now
	}
	settle := c.cfg.StabilizationWindow - now.Sub(t.differsSince)
	if want.Status == metav1.ConditionTrue && (t.Ready == nil || t.Ready.ObservedGeneration == want.ObservedGeneration) {
		settle = 0
	}
	return max(settle, c.cfg.MinWriteInterval-now.Sub(t.lastWritten))
}

// writeCondition writes the condition, and makes an Event of what changed for users.
func (c *Controller) writeCondition(ctx context.Context, ref network.Ref, t *networkState, want metav1.Condition) error {
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
	t.Ready, t.lastWritten, t.differsSince = &want, now, time.Time{}
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
