// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// assignedPace is how often a Cluster says what is assigned to it, and how soon its rights are
// looked at again, at the latest.
const assignedPace = 10 * time.Second

// clusters says of each Cluster whether it is in and alive, and what is placed on it.
type clusters struct{ *hub }

// addClusters makes a manager look after Clusters.
func (h *hub) addClusters(m manager.Manager) error {
	c := &clusters{hub: h}
	return builder.ControllerManagedBy(m).
		WithOptions(controller.Options{RateLimiter: retries[reconcile.Request]()}).
		For(&v1alpha1.Cluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(byNamespace)).
		Watches(&rbacv1.Role{}, handler.EnqueueRequestsFromMapFunc(byNamespace)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(byNamespace)).
		Watches(&rbacv1.ClusterRole{}, handler.EnqueueRequestsFromMapFunc(byUser)).
		Watches(&rbacv1.ClusterRoleBinding{}, handler.EnqueueRequestsFromMapFunc(byUser)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(byItself)).
		Complete(c)
}

// byNamespace is the Cluster whose namespace an object is in.
func byNamespace(_ context.Context, o client.Object) []reconcile.Request {
	return requests(clusterOf(o.GetNamespace()))
}

// byItself is the Cluster whose namespace an object is.
func byItself(_ context.Context, o client.Object) []reconcile.Request {
	return requests(clusterOf(o.GetName()))
}

// byUser is the Cluster whose agent has its name from an object.
func byUser(_ context.Context, o client.Object) []reconcile.Request {
	return requests(strings.CutPrefix(o.GetName(), v1alpha1.ClusterUserPrefix))
}

func requests(cluster string, ok bool) []reconcile.Request {
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: cluster}}}
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
		c.presence.forget(req.Name)
		return reconcile.Result{}, c.access.revoke(ctx, req.Name)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("look for Cluster %s: %w", req.Name, err)
	}
	// Whatever keeps a cluster from its rights, its heartbeat is seen. One that is being deleted
	// has no new rights: somebody's finalizer lets it be emptied first.
	var denied error
	if cluster.DeletionTimestamp == nil {
		denied = c.access.grant(ctx, cluster)
	}
	lease, beat, err := c.see(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := c.now()
	left := beat.left(now)
	conditions := []metav1.Condition{acceptance(cluster, beat), reachability(cluster, beat, now)}
	if drained(cluster) {
		progress, err := c.drain(ctx, cluster, lease, left > 0)
		if err != nil {
			return reconcile.Result{}, err
		}
		conditions = append(conditions, progress)
	}
	if err := errors.Join(denied, c.write(ctx, cluster, conditions)); err != nil {
		return reconcile.Result{}, err
	}
	if left == 0 || left > assignedPace {
		left = assignedPace
	}
	return reconcile.Result{RequeueAfter: left}, nil
}
