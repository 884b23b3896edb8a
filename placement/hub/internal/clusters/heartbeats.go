// SPDX-License-Identifier: Apache-2.0

package clusters

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
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// defaultLeaseDuration applies to a heartbeat without leaseDurationSeconds.
const defaultLeaseDuration = 40 * time.Second

// Heartbeat is the last known heartbeat of one cluster.
type Heartbeat struct {
	renewTime      time.Time     // by the agent's clock; zero: there is no heartbeat
	newest         time.Time     // renewTime of the last new heartbeat, which a deleted or restored Lease does not change
	observed       time.Time     // when newest changed, by the hub's clock
	duration       time.Duration // how long it is valid from then on
	namespaceTaken bool          // the hub did not make the namespace: the heartbeat proves nothing
}

// remaining returns how long the heartbeat is still valid.
func (h Heartbeat) remaining(now time.Time) time.Duration {
	if h.renewTime.IsZero() || h.namespaceTaken {
		return 0
	}
	return max(0, h.duration-now.Sub(h.observed))
}

// Heartbeats stores for each cluster when this hub saw its heartbeat change. Heartbeats count from
// then, as in leader election: the clocks of agents need not agree with the hub's.
type Heartbeats struct {
	cached, direct client.Reader
	now            func() time.Time

	mu           sync.Mutex
	byCluster    map[string]Heartbeat
	since        time.Time // when this hub began to lead
	tooManySince time.Time // when more than a third of the clusters was last seen to be silent
}

// NewHeartbeats returns Heartbeats that are read from the cache, and from the API server where
// the cache may be behind.
func NewHeartbeats(cached, direct client.Reader, now func() time.Time) *Heartbeats {
	return &Heartbeats{cached: cached, direct: direct, now: now, byCluster: map[string]Heartbeat{}}
}

// ObserveAll observes the heartbeats of all clusters. A new leader does so before its first
// decision: the conditions that its predecessor stored may be old.
func (h *Heartbeats) ObserveAll(ctx context.Context) error {
	h.mu.Lock()
	h.since = h.now()
	h.mu.Unlock()
	var list v1alpha1.ClusterList
	if err := h.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	for i := range list.Items {
		if _, _, err := h.Observe(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// Observe reads the heartbeat of one cluster, and whether its namespace is the hub's.
func (h *Heartbeats) Observe(ctx context.Context, c *v1alpha1.Cluster) (*coordinationv1.Lease, Heartbeat, error) {
	_, owner, err := findNamespace(ctx, h.cached, h.direct, c)
	if err != nil {
		return nil, Heartbeat{}, err
	}
	lease := &coordinationv1.Lease{}
	if last, known := h.last(c.Name); known && last.remaining(h.now()) == 0 { // it may return now: note how many are silent
		if _, err := h.Inventory(ctx); err != nil {
			return nil, Heartbeat{}, err
		}
	}
	key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + c.Name, Name: v1alpha1.HeartbeatLease}
	if err := h.cached.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return nil, Heartbeat{}, fmt.Errorf("read the heartbeat of %s: %w", c.Name, err)
	}
	return lease, h.record(c.Name, lease, owner == ownerOther, h.now()), nil
}

// record stores a cluster's heartbeat. The first one that a hub reads may be old: it counts from
// its own time, or from now if that is in the future.
func (h *Heartbeats) record(cluster string, lease *coordinationv1.Lease, namespaceTaken bool, now time.Time) Heartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.byCluster[cluster]
	next := Heartbeat{observed: now, duration: defaultLeaseDuration, namespaceTaken: namespaceTaken}
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		next.duration = time.Duration(*d) * time.Second
	}
	if t := lease.Spec.RenewTime; t != nil {
		next.renewTime, next.newest = t.Time, t.Time
	}
	switch {
	case known && !next.renewTime.After(before.renewTime): // an earlier one comes from a restored backup
		next.observed, next.newest = before.observed, before.newest
	case !known && next.renewTime.Before(now):
		next.observed = now.Add(next.renewTime.Sub(now)) // so that a jump of the hub's clock does not count
	}
	h.byCluster[cluster] = next
	return next
}

// Forget drops a cluster that left the inventory.
func (h *Heartbeats) Forget(cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byCluster, cluster)
}

// Observed returns when this hub saw the last heartbeat of each cluster, by its own clock. Clusters
// without a heartbeat are left out.
func (h *Heartbeats) Observed() map[string]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]time.Time, len(h.byCluster))
	for cluster, last := range h.byCluster {
		if !last.renewTime.IsZero() && !last.namespaceTaken {
			all[cluster] = last.observed
		}
	}
	return all
}

// Inventory has all Clusters at one moment.
type Inventory struct {
	// Clusters are all Clusters by name, with the condition Reachable as it is now.
	Clusters map[string]*v1alpha1.Cluster
	// TakenNamespaces has the names of those whose namespace the hub did not make.
	TakenNamespaces map[string]bool
	// Unstored: the condition Reachable of a Cluster differs from the cached one. If it changes back before the cache
	// has the difference, no event of the Cluster queues the objects that were decided by it.
	Unstored bool
	// Silence counts the clusters that do not report.
	Silence policy.Silence
	// LossClocks has, by name, the times of each cluster that does not report.
	LossClocks map[string]policy.LossClock
	// DeclaredLost are the clusters that an admin has declared lost, and that have not reported since.
	DeclaredLost map[string]bool
}

// Inventory returns the present inventory.
func (h *Heartbeats) Inventory(ctx context.Context) (Inventory, error) {
	var list v1alpha1.ClusterList
	if err := h.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return Inventory{}, fmt.Errorf("list Clusters: %w", err)
	}
	in := Inventory{
		Clusters: make(map[string]*v1alpha1.Cluster, len(list.Items)), TakenNamespaces: map[string]bool{},
		LossClocks: map[string]policy.LossClock{}, DeclaredLost: map[string]bool{},
	}
	now := h.now()
	for i := range list.Items {
		c := &list.Items[i]
		last, known := h.last(c.Name)
		if last.namespaceTaken {
			in.TakenNamespaces[c.Name] = true
		}
		if known && (last.remaining(now) > 0) != IsReachable(c) {
			c, in.Unstored = withReachable(c, last, now), true
		}
		in.Clusters[c.Name] = c
		if known && isDeclaredLost(c, last, now) {
			in.DeclaredLost[c.Name] = true
		}
	}
	h.countSilent(&in, now)
	return in, nil
}

// countSilent counts the silent clusters of an inventory, and sets since when each one is silent.
func (h *Heartbeats) countSilent(in *Inventory, now time.Time) {
	all := make([]policy.Cluster, 0, len(in.Clusters))
	for name, c := range in.Clusters {
		all = append(all, policy.Cluster{
			Spec: &c.Spec, Deleting: c.DeletionTimestamp != nil, Reachability: ReachabilityOf(c), DeclaredLost: in.DeclaredLost[name],
		})
	}
	in.Silence = policy.CountSilence(all)
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.Silence.IsTooMany() {
		h.tooManySince = now
	}
	for name, c := range in.Clusters {
		if ReachabilityOf(c) != policy.NotReporting {
			continue
		}
		last := h.byCluster[name]
		in.LossClocks[name] = policy.LossClock{
			SilentSince: last.observed.Add(last.duration), ObservedSince: h.since, TooManySince: h.tooManySince,
		}
	}
}

func (h *Heartbeats) last(cluster string) (last Heartbeat, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, known = h.byCluster[cluster]
	return last, known
}

func withReachable(c *v1alpha1.Cluster, h Heartbeat, now time.Time) *v1alpha1.Cluster {
	next := c.DeepCopy()
	condition := reachableCondition(c, h, now)
	condition.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&next.Status.Conditions, condition)
	return next
}
