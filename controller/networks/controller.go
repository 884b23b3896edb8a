// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
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
