// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// defaultLease is how long a heartbeat holds that does not say.
	defaultLease = 40 * time.Second
	// assignedPace is how often a Cluster says what is assigned to it, at most.
	assignedPace = 2 * time.Second
)

// clusters says of each Cluster whether it is in and alive, and what is placed on it.
type clusters struct {
	*hub
	access access
}

// addClusters makes a manager look after Clusters.
func (h *hub) addClusters(m manager.Manager) error {
	c := &clusters{hub: h, access: access{direct: m.GetClient()}}
	return builder.ControllerManagedBy(m).Named("clusters").
		For(&v1alpha1.Cluster{}).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(byNamespace)).
		Watches(&v1alpha1.Assignment{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q slowQueue) { later(e.Object, q) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q slowQueue) {
				if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
					later(e.ObjectOld, q)
					later(e.ObjectNew, q)
				}
			},
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q slowQueue) { later(e.Object, q) },
		}).
		Complete(c)
}

// slowQueue is where Clusters wait to say what is assigned to them.
type slowQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// later queues the clusters of an Assignment, not at once: many change together.
func later(o client.Object, q slowQueue) {
	a, ok := o.(*v1alpha1.Assignment)
	if !ok {
		return
	}
	for _, t := range a.Spec.Targets {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: string(t.Cluster)}}, assignedPace)
	}
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
	if err := c.cached.Get(ctx, req.NamespacedName, cluster); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cluster.DeletionTimestamp != nil {
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
	alive, left := c.heartbeat(lease)
	next := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster.Name}}
	next.Status.Conditions = c.conditions(cluster, alive, lease)
	next.Status.Assigned = c.assigned(cluster.Name)
	if err := c.write(ctx, cluster, next); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

// heartbeat says whether a heartbeat is fresh, and how long it stays so.
func (c *clusters) heartbeat(lease *coordinationv1.Lease) (bool, time.Duration) {
	if lease.Spec.RenewTime == nil {
		return false, 0
	}
	holds := defaultLease
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		holds = time.Duration(*d) * time.Second
	}
	left := holds - c.now().Sub(lease.Spec.RenewTime.Time)
	return left > 0, max(0, left)
}

// conditions are the hub's: Accepted and Reachable.
func (c *clusters) conditions(cluster *v1alpha1.Cluster, alive bool, lease *coordinationv1.Lease) []metav1.Condition {
	accepted := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted",
		ObservedGeneration: cluster.Generation,
	}
	if !cluster.Spec.Accepted {
		accepted.Status, accepted.Reason = metav1.ConditionFalse, "Waiting"
		accepted.Message = "set spec.accepted, or run: kubectl patchbay cluster accept " + cluster.Name
	}
	reachable := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue, Reason: "Heartbeat"}
	switch {
	case alive:
	case lease.Spec.RenewTime == nil:
		reachable.Status, reachable.Reason = metav1.ConditionFalse, "NeverSeen"
		reachable.Message = "no agent has joined yet"
	default:
		reachable.Status, reachable.Reason = metav1.ConditionFalse, "Silent"
		reachable.Message = "no heartbeat since " + lease.Spec.RenewTime.UTC().Format(time.RFC3339) + "; what runs there is not taken for lost"
	}
	list := []metav1.Condition{accepted, reachable}
	for i := range list {
		list[i].LastTransitionTime = metav1.NewTime(c.now())
		if old := meta.FindStatusCondition(cluster.Status.Conditions, list[i].Type); old != nil && old.Status == list[i].Status {
			list[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	return list
}

// assigned sums up what the hub has placed on a cluster.
func (c *clusters) assigned(name string) *v1alpha1.Assigned {
	u := c.ledger.of(name)
	a := &v1alpha1.Assigned{Objects: int32(u.objects), Replicas: int32(u.replicas)}
	if u.milliCPU > 0 || u.memory > 0 {
		a.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(u.milliCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(u.memory, resource.BinarySI),
		}
	}
	return a
}

// write applies what the hub says of a Cluster, if it is something else than before.
func (c *clusters) write(ctx context.Context, before, next *v1alpha1.Cluster) error {
	changed := !equality.Semantic.DeepEqual(before.Status.Assigned, next.Status.Assigned)
	for _, n := range next.Status.Conditions {
		old := meta.FindStatusCondition(before.Status.Conditions, n.Type)
		changed = changed || old == nil || *old != n
	}
	if !changed {
		return nil
	}
	next.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Cluster"))
	//nolint:staticcheck // apply configurations are not generated for our kinds
	err := c.direct.Status().Patch(ctx, next, client.Apply, client.FieldOwner(v1alpha1.HubManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write status of Cluster %s: %w", next.Name, err)
	}
	return nil
}
