// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// Config configures a Controller. Metrics and Events are required.
type Config struct {
	// Events gets Events about networks that become ready or not ready.
	Events EventRecorder
	// Metrics has the values of the metrics.
	Metrics *Metrics
	// StabilizationWindow is how long a change must last before it is written, except for a network
	// that becomes ready; 10 s when zero.
	StabilizationWindow time.Duration
	// MinWriteInterval is the least time between two writes of one network; 10 s when zero.
	MinWriteInterval time.Duration
	// Timeout bounds one reconciliation; 30 s when zero.
	Timeout time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.StabilizationWindow, 10 * time.Second}, {&c.MinWriteInterval, 10 * time.Second}, {&c.Timeout, 30 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// EventRecorder makes Events; record.EventRecorder of client-go implements it.
type EventRecorder interface {
	// Event makes an Event on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}

// Controller maintains the condition Ready of networks.
type Controller struct {
	cfg     Config
	store   Store
	metrics *Metrics
	reports nodeReports
	states  stateCache
}

// networkState is what was last read and written of a network.
type networkState struct {
	Snapshot
	// differsSince is when the condition was first found to differ from the nodes' reports; zero
	// when it does not. lastWritten is when it was last written.
	differsSince, lastWritten time.Time
}

// stateCache holds the state of each network that was reconciled. It is safe for concurrent use.
type stateCache struct {
	mu    sync.Mutex
	byRef map[network.Ref]networkState
}

// get returns the state of a network; the zero state when there is none.
func (c *stateCache) get(ref network.Ref) networkState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byRef[ref]
}

func (c *stateCache) set(ref network.Ref, s networkState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byRef == nil {
		c.byRef = map[network.Ref]networkState{}
	}
	c.byRef[ref] = s
}

func (c *stateCache) remove(ref network.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byRef, ref)
}

// needing returns the networks that need one of these delegates, in no order.
func (c *stateCache) needing(delegates map[delegate]bool) []network.Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	var refs []network.Ref
	for ref, s := range c.byRef {
		if delegates[s.Needs.Delegate] {
			refs = append(refs, ref)
		}
	}
	return refs
}

// refs returns the networks, in no order.
func (c *stateCache) refs() []network.Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.byRef))
}

func newController(cfg Config, store Store) *Controller {
	cfg = cfg.withDefaults()
	return &Controller{cfg: cfg, store: store, metrics: cfg.Metrics}
}

// workers is how many networks are reconciled at a time.
const workers = 2

// queue holds the networks to reconcile.
type queue = workqueue.TypedRateLimitingInterface[network.Ref]

// Add makes a manager run a Controller while it leads. The manager's client must read from the API
// server, and its cache must be configured with CacheByObject.
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

// networkHandler queues a network that was created, deleted, or whose spec changed. Address claims
// change only its status.
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

// nodeNetworkHandler queues the networks whose report by a node changed, and all networks when a
// node joins or leaves.
func (c *Controller) nodeNetworkHandler() handler.TypedEventHandler[*v1.NodeNetwork, network.Ref] {
	update := func(nn *v1.NodeNetwork, q queue) {
		changes := c.reports.update(nn)
		refs := changes.networks
		switch {
		case changes.joined:
			refs = append(refs, c.states.refs()...)
		case len(changes.delegates) > 0:
			refs = append(refs, c.states.needing(changes.delegates)...)
		}
		for _, ref := range refs {
			q.Add(ref)
		}
	}
	return handler.TypedFuncs[*v1.NodeNetwork, network.Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1.NodeNetwork], q queue) { update(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1.NodeNetwork], q queue) { update(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1.NodeNetwork], q queue) {
			c.reports.remove(e.Object.Name)
			for _, ref := range c.states.refs() {
				q.Add(ref)
			}
		},
	}
}

// Reconcile makes a network's condition follow the nodes' reports, now or when it is time. The
// queue gives a network to one worker at a time.
func (c *Controller) Reconcile(ctx context.Context, ref network.Ref) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	// The reports of some nodes only would give a wrong condition.
	if err := c.reports.readOnce(ctx, c.store.Nodes); err != nil {
		return reconcile.Result{}, err
	}
	state, exists, err := c.readState(ctx, ref)
	if err != nil || !exists || !state.Needs.any() {
		c.metrics.forget(ref)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if !exists {
		c.states.remove(ref)
		return reconcile.Result{}, nil
	}
	c.states.set(ref, state) // before the reports are read: a change of them queues the known networks
	var wait time.Duration
	if state.Needs.any() {
		state, wait, err = c.updateCondition(ctx, ref, state)
	} else {
		state, wait, err = c.removeCondition(ctx, ref, state)
	}
	c.states.set(ref, state)
	return reconcile.Result{RequeueAfter: wait}, err
}

// readState returns the state of a network. It reads the object when the network is new or its
// spec has changed.
func (c *Controller) readState(ctx context.Context, ref network.Ref) (state networkState, exists bool, err error) {
	version, exists, err := c.store.Version(ctx, ref)
	if err != nil || !exists {
		return networkState{}, false, err
	}
	state = c.states.get(ref)
	if state.UID == version.UID && state.Generation >= version.Generation {
		return state, true, nil
	}
	read, exists, err := c.store.Read(ctx, ref, version.ResourceVersion)
	if err != nil || !exists {
		return networkState{}, false, err
	}
	if state.UID != read.UID {
		state = networkState{}
	}
	state.Snapshot = read
	return state, true, nil
}

// updateCondition writes the condition if it differs from the nodes' reports and it is time to. It
// returns the new state, valid beside an error, and how long to wait before it is time.
func (c *Controller) updateCondition(ctx context.Context, ref network.Ref, s networkState) (networkState, time.Duration, error) {
	want := readyCondition(ref.String(), s.Needs, c.reports.all())
	want.ObservedGeneration = s.Generation
	c.metrics.setReady(ref, want.Status)
	if s.matches(want) {
		s.differsSince = time.Time{}
		return s, 0, nil
	}
	if s.differsSince.IsZero() {
		s.differsSince = c.cfg.Now()
	}
	if wait := c.writeDelay(s, want); wait > 0 {
		return s, wait, nil
	}
	s, err := c.writeCondition(ctx, ref, s, want)
	return s, 0, err
}

// matches reports whether the condition has the content of want, apart from its time.
func (s networkState) matches(want metav1.Condition) bool {
	return s.Ready != nil && s.Ready.Status == want.Status && s.Ready.Reason == want.Reason &&
		s.Ready.Message == want.Message && s.Ready.ObservedGeneration == want.ObservedGeneration
}

// writeDelay is how long to wait before the condition may be written. A network with an unchanged
// spec that becomes ready does not wait for the stabilization window, because a user may be
// waiting for that.
func (c *Controller) writeDelay(s networkState, want metav1.Condition) time.Duration {
	now := c.cfg.Now()
	unstable := c.cfg.StabilizationWindow - now.Sub(s.differsSince)
	if want.Status == metav1.ConditionTrue && (s.Ready == nil || s.Ready.ObservedGeneration == want.ObservedGeneration) {
		unstable = 0
	}
	return max(unstable, c.cfg.MinWriteInterval-now.Sub(s.lastWritten))
}

// writeCondition writes the condition, and makes an Event if its status changed for users.
func (c *Controller) writeCondition(ctx context.Context, ref network.Ref, s networkState, want metav1.Condition) (networkState, error) {
	now, before := c.cfg.Now(), s.Ready
	want.LastTransitionTime = metav1.NewTime(now)
	if before != nil && before.Status == want.Status {
		want.LastTransitionTime = before.LastTransitionTime
	}
	if err := c.store.Write(ctx, ref, s.UID, &want); err != nil {
		return s, err
	}
	c.metrics.written.Inc()
	s.Ready, s.lastWritten, s.differsSince = &want, now, time.Time{}
	obj := &corev1.ObjectReference{
		APIVersion: v1.SchemeGroupVersion().String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, UID: s.UID,
	}
	switch {
	case before != nil && before.Status == want.Status, before == nil && want.Status == metav1.ConditionTrue:
	case want.Status == metav1.ConditionTrue:
		c.cfg.Events.Event(obj, corev1.EventTypeNormal, want.Reason, want.Message)
	default:
		c.cfg.Events.Event(obj, corev1.EventTypeWarning, want.Reason, want.Message)
	}
	return s, nil
}

// removeCondition removes the condition from a network that needs nothing on nodes any more, or is invalid,
// because this package would not update it. A condition that nodes set on an invalid network has
// another reason, and stays. It returns what updateCondition returns.
func (c *Controller) removeCondition(ctx context.Context, ref network.Ref, s networkState) (networkState, time.Duration, error) {
	ours := []string{v1.ReasonLinksUp, v1.ReasonLinksNotUp, v1.ReasonNoNodeReports, v1.ReasonDelegateInstalled, v1.ReasonDelegateNotInstalled}
	if s.Ready == nil || !slices.Contains(ours, s.Ready.Reason) {
		return s, 0, nil
	}
	now := c.cfg.Now()
	if wait := c.cfg.MinWriteInterval - now.Sub(s.lastWritten); wait > 0 {
		return s, wait, nil
	}
	if err := c.store.Write(ctx, ref, s.UID, nil); err != nil {
		return s, 0, err
	}
	c.metrics.written.Inc()
	s.Ready, s.lastWritten, s.differsSince = nil, now, time.Time{}
	return s, 0, nil
}

// Metrics are the values of the leader; in another replica the metrics have none.
type Metrics struct {
	readiness *prometheus.GaugeVec
	written   prometheus.Counter
}

// RegisterMetrics registers all metrics of the package.
func RegisterMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		readiness: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "patchbay_network_ready", Help: "1 if the network's link is up, and its CNI plugin installed, on all nodes, else 0. It changes at once, and the condition Ready later.",
		}, []string{"kind", "namespace", "name"}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_network_conditions_written_total", Help: "Writes of the condition Ready of networks.",
		}),
	}
	r.MustRegister(m.readiness, m.written)
	return m
}

func (m *Metrics) setReady(ref network.Ref, s metav1.ConditionStatus) {
	value := 0.0
	if s == metav1.ConditionTrue {
		value = 1
	}
	m.readiness.WithLabelValues(ref.Kind, ref.Namespace, ref.Name).Set(value)
}

func (m *Metrics) forget(ref network.Ref) {
	m.readiness.DeleteLabelValues(ref.Kind, ref.Namespace, ref.Name)
}
