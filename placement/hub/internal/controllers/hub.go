// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Config is how the controllers run.
type Config struct {
	// Workers is how many objects are placed at a time. Default: 8.
	Workers int
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	probeLife, freshWait time.Duration // for tests
}

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.probeLife, c.freshWait = cmp.Or(c.probeLife, probeLife), cmp.Or(c.freshWait, freshWait)
	return c
}

// hub is what all passes share.
type hub struct {
	cached cache.Cache   // hints, and our own kinds
	direct client.Client // the API server itself
	events record.EventRecorder
	now    func() time.Time

	access   *access
	presence presence
	kinds    *kinds
	ledger   *ledger
	drains   *drains
	recent   sync.Map // of Key: memory
	compiled sync.Map // of namespace: *ruleSet

	loading sync.Mutex
	loaded  bool
	signer  signer
	probed  chan struct{} // closed: nobody else runs workloads here

	probeLife, freshWait time.Duration
}

// load reads once, before the first decision, what all decisions depend on.
func (h *hub) load(ctx context.Context) error {
	h.loading.Lock()
	defer h.loading.Unlock()
	if h.loaded {
		return nil
	}
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(namespaceKind())
	if err := h.direct.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("read the hub's UID: %w", err)
	}
	var works v1alpha1.WorkList
	if err := h.cached.List(ctx, &works, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Works: %w", err)
	}
	known := ""
	for i := range works.Items {
		if known = works.Items[i].Spec.Epoch; known != "" {
			break
		}
	}
	next, err := nextTerm(ctx, h.direct, h.signer.current(), known, h.now())
	if err != nil {
		return err
	}
	next.hub = system.UID
	h.signer.begin(next)
	var list v1alpha1.AssignmentList
	if err := h.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Assignments: %w", err)
	}
	if len(list.Items) == 0 {
		if err := h.awaitProbe(ctx); err != nil {
			return err
		}
	}
	for i := range list.Items {
		h.ledger.put(keyOf(list.Items[i].Spec.Object), claimOf(&list.Items[i]))
		h.drains.resume(&list.Items[i])
	}
	if err := h.seeAll(ctx); err != nil {
		return err
	}
	h.loaded = true
	return nil
}

// restored begins another term, after a Work was found to be older than this leader has left
// it: the hub was restored from a backup while it ran. All that depends on what is stored is
// read again.
func (h *hub) restored(ctx context.Context, work client.ObjectKey) error {
	log.FromContext(ctx).Info("A Work is older than it was left: the hub's state was restored, or the Work was deleted", "work", work)
	h.loading.Lock()
	defer h.loading.Unlock()
	h.loaded = false
	return errStale
}

// reachable says that the cluster's heartbeat is fresh.
func reachable(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable)
}

// lost says that the policy takes the cluster for lost: it has been unreachable for
// as long as the policy says.
func (p *pass) lost(c *v1alpha1.Cluster) bool {
	if p.wish == nil || p.wish.Spec.Offline.AssumeLostAfter == nil {
		return false
	}
	condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	if condition == nil || condition.Status == metav1.ConditionTrue {
		return false
	}
	return p.now().Sub(condition.LastTransitionTime.Time) >= p.wish.Spec.Offline.AssumeLostAfter.Duration
}
