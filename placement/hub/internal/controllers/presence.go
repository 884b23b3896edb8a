// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// defaultLease is how long a heartbeat holds that does not say.
const defaultLease = 40 * time.Second

// presence remembers of each cluster when this hub itself saw its heartbeat change. Heartbeats
// count from there, as in leader election: the clocks of agents need not agree with the hub's.
type presence struct {
	mu       sync.Mutex
	clusters map[string]beat
}

// beat is what is known of one cluster.
type beat struct {
	renewed time.Time     // by the agent's clock; zero: there is no heartbeat
	seen    time.Time     // when that changed, by the hub's clock
	holds   time.Duration // from then on
	taken   bool          // its namespace is somebody else's, and so is what is in it
}

// left is how long the heartbeat holds yet.
func (b beat) left(now time.Time) time.Duration {
	if b.renewed.IsZero() || b.taken {
		return 0
	}
	return max(0, b.holds-now.Sub(b.seen))
}

// observe notes a cluster's heartbeat as it is stored. The first that a hub sees may be old: it
// counts from its own time then, and from now if that is yet to come.
func (p *presence) observe(cluster string, lease *coordinationv1.Lease, taken bool, now time.Time) beat {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.clusters[cluster]
	b := beat{seen: now, holds: defaultLease, taken: taken}
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		b.holds = time.Duration(*d) * time.Second
	}
	if t := lease.Spec.RenewTime; t != nil {
		b.renewed = t.Time
	}
	switch {
	case known && !b.renewed.After(before.renewed): // it goes back when a hub is restored: that is no sign of life
		b.seen = before.seen
	case !known && b.renewed.Before(now):
		b.seen = b.renewed
	}
	if p.clusters == nil {
		p.clusters = map[string]beat{}
	}
	p.clusters[cluster] = b
	return b
}

// forget drops a cluster that is not in the inventory any more.
func (p *presence) forget(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clusters, cluster)
}

// of is what is known of a cluster.
func (p *presence) of(cluster string) (b beat, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, known = p.clusters[cluster]
	return b, known
}

// current is a Cluster with the condition Reachable as it is now. What is stored may be of an
// earlier leader, and older than the last heartbeat.
func (p *presence) current(c *v1alpha1.Cluster, now time.Time) *v1alpha1.Cluster {
	b, known := p.of(c.Name)
	if !known || (b.left(now) > 0) == reachable(c) {
		return c
	}
	next := c.DeepCopy()
	condition := reachability(c, b, now)
	condition.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&next.Status.Conditions, condition)
	return next
}

// see brings up to date what the hub knows of a cluster's namespace and heartbeat.
func (h *hub) see(ctx context.Context, c *v1alpha1.Cluster) (*coordinationv1.Lease, beat, error) {
	_, owner, err := h.access.namespace(ctx, c)
	if err != nil {
		return nil, beat{}, err
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + c.Name, Name: v1alpha1.HeartbeatLease}
	if err := h.cached.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return nil, beat{}, fmt.Errorf("look for the heartbeat of %s: %w", c.Name, err)
	}
	return lease, h.presence.observe(c.Name, lease, owner == ownerOther, h.now()), nil
}

// seeAll does so for all clusters: a new leader looks at their heartbeats before it plans.
func (h *hub) seeAll(ctx context.Context) error {
	var list v1alpha1.ClusterList
	if err := h.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	for i := range list.Items {
		if _, _, err := h.see(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
