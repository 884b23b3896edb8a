// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// defaultLease is how long a heartbeat holds that does not say.
	defaultLease = 40 * time.Second
	// assignedPace is how often a Cluster says what is assigned to it.
	assignedPace = 10 * time.Second
)

// clusters says of each Cluster whether it is in and alive, and what is placed on it.
type clusters struct {
	*hub
	access access
}

// addClusters makes a manager look after Clusters.
func (h *hub) addClusters(m manager.Manager) error {
	c := &clusters{hub: h, access: access{direct: m.GetClient()}}
	return builder.ControllerManagedBy(m).
		WithOptions(controller.Options{RateLimiter: retries[reconcile.Request]()}).
		For(&v1alpha1.Cluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(byNamespace)).
		Complete(c)
}

// byNamespace is the Cluster whose namespace an object is in.
func byNamespace(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := clusterOf(o.GetNamespace())
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// Reconcile brings one Cluster's rights and conditions up to date.
func (c *clusters) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := c.load(ctx); err != nil {
		return reconcile.Result{}, err
	}
	cluster := &v1alpha1.Cluster{}
	err := c.cached.Get(ctx, req.NamespacedName, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, c.access.revoke(ctx, req.Name)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("look for Cluster %s: %w", req.Name, err)
	case cluster.DeletionTimestamp != nil: // somebody's finalizer lets it be emptied first
		return reconcile.Result{}, nil
	}
	if err := c.access.grant(ctx, cluster); err != nil {
		return reconcile.Result{}, err
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + cluster.Name, Name: v1alpha1.HeartbeatLease}
	if err := c.cached.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("look for the heartbeat of %s: %w", cluster.Name, err)
	}
	left := c.left(lease)
	conditions := c.conditions(cluster, lease, left > 0)
	if drained(cluster) {
		progress, err := c.drain(ctx, cluster, lease, left > 0)
		if err != nil {
			return reconcile.Result{}, err
		}
		conditions = append(conditions, progress)
	}
	if err := c.write(ctx, cluster, conditions); err != nil {
		return reconcile.Result{}, err
	}
	if left == 0 || left > assignedPace {
		left = assignedPace
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

// left is how long a heartbeat is fresh yet.
func (c *clusters) left(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.RenewTime == nil {
		return 0
	}
	holds := defaultLease
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		holds = time.Duration(*d) * time.Second
	}
	return max(0, holds-c.now().Sub(lease.Spec.RenewTime.Time))
}
